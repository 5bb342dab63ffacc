"""Commit statuses: where they stand, and setting them without overwriting a later run's."""

from __future__ import annotations

import re
from collections.abc import Iterator

from github.Commit import Commit
from github.CommitStatus import CommitStatus
from github.PaginatedList import PaginatedList
from github.Repository import Repository

from canary.publish.hub import Hub
from canary.publish.source import Source
from canary.publish.status import StatusText

CONTEXT = "rlhf-canary"
RUN_URL = re.compile(r"/actions/runs/(\d+)(?:/attempts/(\d+))?")


def context_of(context: str, base: str, default: str) -> str:
    """The status of a pull request into another branch than the default one has a name of its own:
    a status belongs to a commit, and the same commit may be the head of two pull requests."""
    return context if base in ("", default) else f"{context} ({base})"


def statuses(repository: Repository, sha: str, context: str) -> Iterator[CommitStatus]:
    """Our statuses of a commit, newest first."""
    found: PaginatedList[CommitStatus] = PaginatedList(
        CommitStatus,
        repository.requester,
        f"{repository.url}/commits/{sha}/statuses",
        {"per_page": 100},
    )
    return (status for status in found if status.context == context)


def set_status(
    hub: Hub, repository: Repository, source: Source, text: StatusText, context: str = CONTEXT
) -> str:
    """Sets the status of the source's commit; returns why not, empty where it did.

    Raises:
        Refused: the token may not write statuses.
        MachineError: GitHub does not take it.
    """
    what = f"the status of {source.sha[:9]}"

    def newest() -> CommitStatus | None:
        return next(statuses(repository, source.sha, context), None)

    def same() -> CommitStatus | None:
        found = newest()
        says = found and (found.state, found.description, found.target_url)
        return found if says == (text.state, text.description, source.url or None) else None

    last = hub.read(what, newest)
    if source.run_id and last is not None and _age(last) > source.age:
        return f"a later run has set {what} already"
    commit = Commit(
        repository.requester,
        {},
        {"sha": source.sha, "url": f"{repository.url}/commits/{source.sha}"},
        completed=True,
    )
    address = {"target_url": source.url} if source.url else {}
    hub.write(
        what,
        same,
        lambda: commit.create_status(
            text.state, description=text.description, context=context, **address
        ),
    )
    return ""


def _age(status: CommitStatus) -> tuple[int, int]:
    """Run and attempt that set it, from its address; (0, 0) where it names none."""
    found = RUN_URL.search(status.target_url or "")
    return (int(found[1]), int(found[2] or 1)) if found else (0, 0)
