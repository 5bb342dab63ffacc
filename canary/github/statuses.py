"""Read commit statuses, and set ours without replacing an answer that must stay.

A status belongs to a commit, and two pull requests may have the same commit: anyone can push
another's head commit to a fork. So the URL of our status names the head repository. Runs of other
repositories do not replace it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from itertools import takewhile
from typing import TypeVar

from github.Commit import Commit
from github.CommitStatus import CommitStatus
from github.PaginatedList import PaginatedList
from github.Repository import Repository

from canary.errors import MachineError
from canary.github.client import Hub, Refused
from canary.github.status import Source, StatusText

CONTEXT = "rlhf-canary"
SIGNED = re.compile(
    r"/actions/runs/(\d+)(?:/attempts/(\d+))?(?:#from=([\w./-]*)(?:&(\w+))?)?$", re.ASCII
)
WORDS = ("accepted", "error")
RANKS = {"success": 1, "failure": 2, "error": 2}
"""Of two answers of the same run and attempt, the higher stays; `pending` is 0."""

NOT_YET = datetime.max.replace(tzinfo=UTC)

Found = TypeVar("Found")


def context_of(context: str, base: str, default: str) -> str:
    """Return the status's name; it names the base branch unless that is the default branch. One
    commit may be the head of two pull requests, and each needs its status."""
    return context if base in ("", default) else f"{context} ({base})"


@dataclass(frozen=True)
class Posted:
    """A status of ours on GitHub."""

    id: int
    state: str
    description: str
    url: str | None
    at: datetime = NOT_YET
    """By GitHub's clock."""

    @property
    def _signature(self) -> tuple[str | None, ...]:
        found = SIGNED.search(self.url or "")
        return found.groups() if found else (None, None, None, None)

    @property
    def age(self) -> tuple[int, int]:
        """Run and attempt; (0, 0) if unknown."""
        run, attempt, *_ = self._signature
        return (int(run), int(attempt or 1)) if run else (0, 0)

    @property
    def origin(self) -> str:
        """owner/name of the head repository; empty if unknown."""
        return self._signature[2] or ""

    @property
    def word(self) -> str:
        """`accepted`, `error` or empty."""
        return self._signature[3] or ""


def signed(source: Source, text: StatusText) -> str | None:
    """Return the run's URL with the signature that `Posted` reads; None outside a run."""
    if not (source.url and source.origin):
        return source.url or None
    word = "accepted" if text.accepted else text.state
    return f"{source.url}#from={source.origin}" + (f"&{word}" if word in WORDS else "")


def statuses(repository: Repository, sha: str, context: str) -> Iterator[Posted]:
    """Yield our statuses of a commit, newest first."""
    found: PaginatedList[CommitStatus] = PaginatedList(
        CommitStatus,
        repository.requester,
        f"{repository.url}/commits/{sha}/statuses",
        {"per_page": 100},
    )
    return (_posted(status) for status in found if status.context == context)


def _posted(status: CommitStatus) -> Posted:
    words = status.description or ""
    return Posted(status.id, status.state, words, status.target_url, status.created_at)


@dataclass(frozen=True)
class StatusWriting:
    """One write of our status."""

    hub: Hub
    source: Source
    text: StatusText
    context: str = CONTEXT

    @property
    def what(self) -> str:
        """Its name in errors."""
        return f"the status of {self.source.sha[:9]}"

    def done(self) -> str:
        """Set the status of the source's commit; return why not, empty if it was set.

        Raises:
            Refused: the token may not write statuses.
            MachineError: GitHub fails.
        """
        last = self._look(self._newest)
        stays = self._why_it_stays(last) if last is not None else ""
        if stays:
            return stays
        wanted = Posted(0, self.text.state, self.text.description, signed(self.source, self.text))

        def put() -> Posted:
            found = self._look(self._newest)  # An earlier try may have taken effect.
            alike = found is not None and replace(found, id=0, at=NOT_YET) == wanted
            return found if found is not None and alike else self._created(wanted)

        made = self.hub.write(self.what, put)
        return self._taken_back(made, last.id if last is not None else 0)

    def _look(self, get: Callable[[], Found]) -> Found | None:
        """Read what is posted; None if that fails for a final answer on a branch of this
        repository: posting it matters more than knowing what it replaces."""
        try:
            return self.hub.read(self.what, get)
        except MachineError:
            own = self.source.origin in ("", self.hub.repository.full_name)
            if self.text.state == "pending" or not own:
                raise
            return None

    def _all(self) -> Iterator[Posted]:
        return statuses(self.hub.repository, self.source.sha, self.context)

    def _newest(self) -> Posted | None:
        return next(self._all(), None)

    def _created(self, wanted: Posted) -> Posted:
        sha, repository = self.source.sha, self.hub.repository
        known = {"sha": sha, "url": f"{repository.url}/commits/{sha}"}
        commit = Commit(repository.requester, {}, known, completed=True)
        link = {"target_url": wanted.url} if wanted.url else {}
        return _posted(
            commit.create_status(
                wanted.state, description=wanted.description, context=self.context, **link
            )
        )

    def _taken_back(self, made: Posted, since: int) -> str:
        """If an answer that must stay came between our read and our write, set it again; return
        why."""

        def between() -> list[Posted]:
            newer = takewhile(lambda one: one.id > since, self._all())
            return [one for one in newer if one.id < made.id]

        for theirs in self._look(between) or ():
            stays = self._why_it_stays(theirs)
            if stays:
                self.hub.write(self.what, partial(self._set_again, theirs, made))
                return stays
        return ""

    def _set_again(self, theirs: Posted, made: Posted) -> Posted:
        """Set another's answer again, unless a newer one came after ours."""
        now = self._newest()
        return now if now is not None and now.id > made.id else self._created(theirs)

    def _why_it_stays(self, there: Posted) -> str:
        """Return why the posted answer must stay; empty if this run may replace it.

        Jobs of one run may share a name; then their worst answer stays.
        """
        source = self.source
        if not (there.origin and source.origin) or there.origin == source.origin:
            if not source.run_id or there.age < source.age:
                return ""
            if there.age > source.age:
                return f"a later run has already set {self.what}"
            if RANKS.get(there.state, 0) > RANKS.get(self.text.state, 0):
                return f"another job of this run has already set {self.what} to {there.state}"
            return ""
        if self._comes_first(there.origin):
            return ""
        return (
            f"{self.what} was not changed: it belongs to {there.origin}, which has the same commit"
        )

    def _comes_first(self, other: str) -> bool:
        """Return whether this run's repository has precedence over `other` on this commit.

        The gated repository precedes every fork. Of two forks, the one whose open pull request is
        by the commit's author precedes; otherwise the one with the older pull request.
        """
        source, repository = self.source, self.hub.repository
        if repository.full_name in (source.origin, other):
            return source.origin == repository.full_name
        what = f"the pull requests of {source.sha[:9]}"
        try:
            pulls = self.hub.read(
                what,
                lambda: [
                    pull
                    for pull in repository.get_pulls(state="open")
                    if pull.head.sha == source.sha and pull.head.repo
                ],
            )
            commit = self.hub.read(what, lambda: repository.get_commit(source.sha))
        except Refused:
            return False
        author = (commit.raw_data.get("author") or {}).get("login")
        claims = [
            (pull.user.login != author, pull.number, pull.head.repo.full_name)
            for pull in pulls
            if pull.head.repo.full_name in (source.origin, other)
        ]
        return bool(claims) and min(claims)[2] == source.origin
