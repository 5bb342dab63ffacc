"""What the reporting job works with: its clients, and the case that it judges.

A commit's pull request comes from GitHub's event or by the head commit, never from anything that
the training job wrote.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeVar

from github.PullRequest import PullRequest
from github.Repository import Repository

from canary.baseline.branch import Remote
from canary.errors import MachineError
from canary.gate.inputs import ReportSettings
from canary.github.client import Hub, Refused
from canary.github.event import Intent
from canary.github.status import Answer, Source
from canary.github.statuses import context_of
from canary.github.workflow import Job

Found = TypeVar("Found")


@dataclass(frozen=True)
class World:
    """The reporting job's access to GitHub, git, the runner and the clock; tests replace it."""

    hub: Hub
    remote: Remote
    job: Job
    now: Callable[[], datetime]


@dataclass
class Target:
    """What is judged and where the answer goes, as far as it is known."""

    settings: ReportSettings
    world: World
    intent: Intent
    comments: bool = True
    """Whether this job may write the comment."""
    pull: PullRequest | None = None
    """Set once it is found."""
    base_sha: str = ""
    """Commit whose config and thresholds apply; set once it is found."""
    judged: Sequence[Answer] = ()
    """The published answers, once they are out."""
    kept: ExitStack = field(default_factory=ExitStack)
    """Holds the files of the records until the page is drawn."""

    @property
    def source(self) -> Source:
        """The commit, and the workflow run that judges it."""
        settings, intent = self.settings, self.intent
        # A deleted repository has no name; without one its run would look like any repository's.
        origin = intent.head_repository or ("deleted" if intent.fork else "")
        return Source(intent.head_sha, settings.run_url, settings.run_id, settings.attempt, origin)

    @property
    def context(self) -> str:
        """The name of the status. The event often names the base branch, even if the token may not
        read the pull request."""
        base = self.pull.base.ref if self.pull is not None else self.intent.base_branch
        return context_of(self.settings.name, base, self.intent.default_branch)

    @property
    def number(self) -> int | None:
        """The number of the pull request."""
        return self.pull.number if self.pull is not None else self.intent.pull_request


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


def find_pull(target: Target) -> None:
    """Find the pull request whose head is, or was, the event's commit; None without one.

    Raises:
        MachineError: GitHub cannot be reached, or its answer lacks what an answer needs.
        Refused: the token may not read pull requests.
    """
    hub, intent = target.world.hub, target.intent
    pull = None
    if intent.pull_request is not None:
        number = intent.pull_request
        pull = hub.read(f"pull request #{number}", lambda: hub.repository.get_pull(number))
    elif intent.run_id is not None:
        pull = _pull_of_run(hub, intent)
    if pull is not None:
        found = pull
        known, *names = hub.read(
            "the pull request",
            lambda: (found.number, found.head.sha, found.base.sha, found.base.ref),
        )
        if not isinstance(known, int) or not all(isinstance(name, str) for name in names):
            raise MachineError(
                "GitHub's answer about the pull request is incomplete", "run the job again"
            )
    target.pull = pull


def _pull_of_run(hub: Hub, intent: Intent) -> PullRequest | None:
    """Return the pull request that a run of another workflow trained; None without one."""
    what = f"the pull request of {intent.head_sha[:9]}"
    found = hub.read(what, lambda: list(_candidates(hub.repository, intent)))
    exact = [pull for pull in found if pull.head.sha == intent.head_sha]
    if exact:
        # Several may have this head commit: prefer an open one into the default branch.
        default = intent.default_branch
        return min(
            exact,
            key=lambda pull: (pull.state != "open", pull.base.ref != default, pull.number),
        )
    try:
        named = hub.read(what, lambda: list(hub.repository.get_commit(intent.head_sha).get_pulls()))
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
