"""Commit statuses: where they stand, and setting them without overwriting a later run's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import TypeVar

from github.Commit import Commit
from github.CommitStatus import CommitStatus
from github.PaginatedList import PaginatedList
from github.Repository import Repository

from canary.github.claim import looked, signed, standing, why_it_stays
from canary.github.client import Hub
from canary.github.source import Source
from canary.github.status import StatusText

CONTEXT = "rlhf-canary"

Found = TypeVar("Found")


@dataclass(frozen=True)
class Seen:
    """A status as GitHub has it."""

    id: int
    state: str
    description: str
    url: str | None


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


@dataclass(frozen=True)
class _Writing:
    """One status of ours on the way to its commit."""

    hub: Hub
    repository: Repository
    source: Source
    text: StatusText
    context: str

    @property
    def what(self) -> str:
        """As an error names it."""
        return f"the status of {self.source.sha[:9]}"

    @property
    def commit(self) -> Commit:
        """The commit, without asking for it."""
        sha = self.source.sha
        known = {"sha": sha, "url": f"{self.repository.url}/commits/{sha}"}
        return Commit(self.repository.requester, {}, known, completed=True)

    def look(self, get: Callable[[], Found]) -> Found | None:
        """As `looked`."""
        return looked(self.hub, self.repository, self.source, self.text, self.what, get)

    def newest(self) -> Seen | None:
        """What stands now."""
        return next(self.all(), None)

    def all(self) -> Iterator[Seen]:
        """Everything that stood, newest first."""
        return map(_seen, statuses(self.repository, self.source.sha, self.context))

    def why_it_stays(self, there: Seen) -> str:
        """As the function of this name."""
        place = standing(there.url, there.state)
        return why_it_stays(self.hub, self.repository, self.source, self.text, self.what, place)


def _seen(status: CommitStatus) -> Seen:
    return Seen(status.id, status.state, status.description or "", status.target_url)


def set_status(
    hub: Hub, repository: Repository, source: Source, text: StatusText, context: str = CONTEXT
) -> str:
    """Sets the status of the source's commit; returns why not, empty where it did.

    Raises:
        Refused: the token may not write statuses.
        MachineError: GitHub does not take it.
    """
    writing = _Writing(hub, repository, source, text, context)
    url = signed(source.url, source, text)
    last = writing.look(writing.newest)
    stays = writing.why_it_stays(last) if last is not None else ""
    if stays:
        return stays
    wanted = Seen(0, text.state, text.description, url or None)

    def same() -> Seen | None:
        found = writing.look(writing.newest)
        return found if found is not None and replace(found, id=0) == wanted else None

    made = hub.write(writing.what, same, lambda: _created(writing, wanted))
    return _taken_back(writing, made, last)


def _created(writing: _Writing, wanted: Seen) -> Seen:
    link = {"target_url": wanted.url} if wanted.url else {}
    return _seen(
        writing.commit.create_status(
            wanted.state, description=wanted.description, context=writing.context, **link
        )
    )


def _taken_back(writing: _Writing, made: Seen, last: Seen | None) -> str:
    """Sets another's answer again that came between our look and our write; returns why."""
    since = last.id if last is not None else 0

    def between() -> list[Seen]:
        newer = takewhile(lambda one: one.id > since, writing.all())
        return [one for one in newer if one.id < made.id]

    for theirs in writing.look(between) or ():
        stays = writing.why_it_stays(theirs)
        if stays:
            _set_again(writing, theirs, made)
            return stays
    return ""


def _set_again(writing: _Writing, theirs: Seen, made: Seen) -> None:
    """Sets another's answer again, as long as none has come after ours."""

    def restored() -> Seen:
        now = writing.newest()
        return now if now is not None and now.id > made.id else _created(writing, theirs)

    writing.hub.write(writing.what, lambda: None, restored)
