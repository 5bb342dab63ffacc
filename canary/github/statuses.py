"""Read commit statuses, and set them without replacing a later run's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import TypeVar

from github.Commit import Commit
from github.CommitStatus import CommitStatus
from github.PaginatedList import PaginatedList
from github.Repository import Repository

from canary.github.claim import lookup, posted_answer, signed, why_it_stays
from canary.github.client import Hub
from canary.github.status import Source, StatusText

CONTEXT = "rlhf-canary"

Found = TypeVar("Found")


@dataclass(frozen=True)
class Seen:
    """A status on GitHub."""

    id: int
    state: str
    description: str
    url: str | None


def context_of(context: str, base: str, default: str) -> str:
    """Return the status's name; it names the base branch unless that is the default branch. One
    commit may be the head of two pull requests, and each needs its status."""
    return context if base in ("", default) else f"{context} ({base})"


def statuses(repository: Repository, sha: str, context: str) -> Iterator[CommitStatus]:
    """Yield our statuses of a commit, newest first."""
    found: PaginatedList[CommitStatus] = PaginatedList(
        CommitStatus,
        repository.requester,
        f"{repository.url}/commits/{sha}/statuses",
        {"per_page": 100},
    )
    return (status for status in found if status.context == context)


@dataclass(frozen=True)
class _Writing:
    """One write of our status."""

    hub: Hub
    repository: Repository
    source: Source
    text: StatusText
    context: str

    @property
    def what(self) -> str:
        """Its name in errors."""
        return f"the status of {self.source.sha[:9]}"

    @property
    def commit(self) -> Commit:
        """The commit, without a request."""
        sha = self.source.sha
        known = {"sha": sha, "url": f"{self.repository.url}/commits/{sha}"}
        return Commit(self.repository.requester, {}, known, completed=True)

    def look(self, get: Callable[[], Found]) -> Found | None:
        """Call `lookup`."""
        return lookup(self.hub, self.repository, self.source, self.text, self.what, get)

    def newest(self) -> Seen | None:
        """Return the current status."""
        return next(self.all(), None)

    def all(self) -> Iterator[Seen]:
        """Yield all statuses, newest first."""
        return map(_seen, statuses(self.repository, self.source.sha, self.context))

    def why_it_stays(self, there: Seen) -> str:
        """Call the function of this name."""
        place = posted_answer(there.url, there.state)
        return why_it_stays(self.hub, self.repository, self.source, self.text, self.what, place)


def _seen(status: CommitStatus) -> Seen:
    return Seen(status.id, status.state, status.description or "", status.target_url)


def set_status(
    hub: Hub, repository: Repository, source: Source, text: StatusText, context: str = CONTEXT
) -> str:
    """Set the status of the source's commit; return why not, empty if it was set.

    Raises:
        Refused: the token may not write statuses.
        MachineError: GitHub fails.
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
    """If an answer that must stay came between our read and our write, set it again; return why."""
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
    """Set another's answer again, unless a newer one came after ours."""

    def restored() -> Seen:
        now = writing.newest()
        return now if now is not None and now.id > made.id else _created(writing, theirs)

    writing.hub.write(writing.what, lambda: None, restored)
