"""Which pull request a commit belongs to: from the event that GitHub sent, or from GitHub itself by
the head commit. Never from anything that the untrusted half wrote."""

from __future__ import annotations

from collections.abc import Iterator

from github.PullRequest import PullRequest
from github.Repository import Repository

from canary.github.client import Hub, Refused
from canary.github.event import Intent


def pull_of(hub: Hub, repository: Repository, intent: Intent) -> PullRequest | None:
    """The pull request whose head the intent's commit is, or was; None where there is none.

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
        # The same commit may be the head of several; the open one into the default branch is meant.
        default = intent.default_branch
        return min(
            exact,
            key=lambda pull: (pull.state != "open", pull.base.ref != default, pull.number),
        )
    try:
        named = hub.read(what, lambda: list(repository.get_commit(intent.head_sha).get_pulls()))
    except Refused:
        named = []  # A commit of a fork that the repository does not know.
    # A stranger's run of the same commit must not speak in another's pull request.
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
    """Pull requests from the branch that the run was of."""
    owner = intent.head_repository.partition("/")[0]
    if not owner or not intent.head_branch:
        return
    for pull in repository.get_pulls(state="all", head=f"{owner}:{intent.head_branch}"):
        if pull.head.repo is None or pull.head.repo.full_name == intent.head_repository:
            yield pull
