"""Commit statuses: where they stand, and setting them without overwriting a later run's."""

from __future__ import annotations

from collections.abc import Iterator

from github.Commit import Commit
from github.CommitStatus import CommitStatus
from github.PaginatedList import PaginatedList
from github.Repository import Repository

from canary.publish.claim import signed, standing, why_it_stays
from canary.publish.hub import Hub
from canary.publish.source import Source
from canary.publish.status import StatusText

CONTEXT = "rlhf-canary"


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
        return found if says == (text.state, text.description, url or None) else None

    url = signed(source.url, source, text)
    last = hub.read(what, newest)
    if last is not None:
        stays = why_it_stays(hub, repository, source, what, standing(last.target_url))
        if stays:
            return stays
    commit = Commit(
        repository.requester,
        {},
        {"sha": source.sha, "url": f"{repository.url}/commits/{source.sha}"},
        completed=True,
    )
    link = {"target_url": url} if url else {}
    made = hub.write(
        what,
        same,
        lambda: commit.create_status(
            text.state, description=text.description, context=context, **link
        ),
    )
    if source.origin == repository.full_name:
        return ""
    return _taken_back(hub, repository, source, commit, made, last)


def _taken_back(
    hub: Hub,
    repository: Repository,
    source: Source,
    commit: Commit,
    made: CommitStatus,
    last: CommitStatus | None,
) -> str:
    """Sets another's answer again that came between our look and our write; returns why."""
    what = f"the status of {source.sha[:9]}"
    older = (one for one in statuses(repository, source.sha, made.context) if one.id < made.id)
    theirs = hub.read(what, lambda: next(older, None))
    if theirs is None or (last is not None and theirs.id == last.id):
        return ""
    stays = why_it_stays(hub, repository, source, what, standing(theirs.target_url))
    if stays:
        known = theirs
        hub.write(
            what,
            lambda: None,
            lambda: commit.create_status(
                known.state,
                target_url=known.target_url,
                description=known.description or "",
                context=known.context,
            ),
        )
    return stays
