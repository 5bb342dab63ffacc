"""What the reporting job works with: its clients, and the case that it judges.

A commit's pull request comes from GitHub's event or by the head commit, never from anything that
the training job wrote.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from github.PullRequest import PullRequest
from github.Repository import Repository

from canary.baseline.branch import Remote
from canary.errors import MachineError
from canary.gate.inputs import ReportSettings
from canary.github.client import Hub, Refused
from canary.github.event import Intent
from canary.github.status import Source
from canary.github.workflow import Job

Found = TypeVar("Found")


@dataclass(frozen=True)
class World:
    """The reporting job's access to GitHub, git, the runner and the clock; tests replace it."""

    hub: Hub
    remote: Remote
    job: Job
    now: Callable[[], datetime]


@dataclass(frozen=True)
class Case:
    """What is judged, on which commit, with which base commit."""

    settings: ReportSettings
    intent: Intent
    repository: Repository
    pull: PullRequest | None
    source: Source
    base_sha: str


def allowed(get: Callable[[], Found]) -> Found:
    """Return a read that judging needs.

    Raises:
        MachineError: GitHub refuses the token.
    """
    try:
        return get()
    except Refused as refused:
        raise MachineError(
            str(refused), "give the job `contents: read` and `pull-requests: read`"
        ) from refused


def pull_of(hub: Hub, repository: Repository, intent: Intent) -> PullRequest | None:
    """Return the pull request whose head is, or was, the intent's commit; None without one.

    Raises:
        MachineError: GitHub cannot be reached.
        Refused: the token may not read pull requests.
    """
    if intent.pull_request is not None:
        number = intent.pull_request
        return hub.read(f"pull request #{number}", lambda: repository.get_pull(number))
    if not intent.event.startswith("workflow_run"):
        return None
    what = f"the pull request of {intent.head_sha[:9]}"
    found = hub.read(what, lambda: list(_candidates(repository, intent)))
    exact = [pull for pull in found if pull.head.sha == intent.head_sha]
    if exact:
        # Several may have this head commit: prefer an open one into the default branch.
        default = intent.default_branch
        return min(
            exact,
            key=lambda pull: (pull.state != "open", pull.base.ref != default, pull.number),
        )
    try:
        named = hub.read(what, lambda: list(repository.get_commit(intent.head_sha).get_pulls()))
    except Refused:
        named = []  # The repository does not know a fork's commit.
    # A fork's run of the same commit must not comment on another's pull request.
    return next(
        (
            pull
            for pull in named
            if pull.head.sha == intent.head_sha
            and pull.head.repo
            and pull.head.repo.full_name == intent.head_repository
        ),
        None,
    )


def _candidates(repository: Repository, intent: Intent) -> Iterator[PullRequest]:
    """Return pull requests from the run's branch."""
    owner = intent.head_repository.partition("/")[0]
    if not owner or not intent.head_branch:
        return
    for pull in repository.get_pulls(state="all", head=f"{owner}:{intent.head_branch}"):
        if pull.head.repo is None or pull.head.repo.full_name == intent.head_repository:
            yield pull
