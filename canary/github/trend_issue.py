"""The issue of a metric that got worse: opened once, kept up to date, closed when it is over.

A hidden mark in its first line says whose it is and which changes it told. Only issues of our own
author count; of several, the oldest. A person may close it: it stays closed until another change.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Annotated, Literal

from github.Issue import Issue
from github.Repository import Repository
from pydantic import BaseModel, ConfigDict, Field

from canary.github.client import Hub

MARK = re.compile(r"<!-- rlhf-canary:trend (\{[^\n]{1,4000}\}) -->(?:\r?\n|$)")
TOLD = "<!-- rlhf-canary:told {} -->"
"""First line of a comment about a change."""
MOST_ISSUES = 5_000
"""Newest issues of our author that are searched."""
MOST_TOLD = 60
LONGEST_TITLE = 200
UNKNOWN = "0" * 12
"""Stands for a commit that nobody knows."""
DIGITS = 12


class Mark(BaseModel):
    """What an issue remembers."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    version: Literal[1]
    key: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
    told: Annotated[
        list[Annotated[str, Field(pattern=r"^[0-9a-f]{12}$")]], Field(max_length=MOST_TOLD)
    ]
    """Commits with which the changes began that it told."""
    ended: bool = False
    """Whether we closed it."""
    opened: Annotated[int, Field(ge=1)] = 1
    """How often it was opened."""

    @property
    def line(self) -> str:
        """The issue's first line."""
        return f"<!-- rlhf-canary:trend {self.model_dump_json()} -->"


def key_of(canary: str, machine: str, metric: str) -> str:
    """Return the key of a metric's issue."""
    return hashlib.sha256("\0".join((canary, machine, metric)).encode()).hexdigest()[:32]


def mark_of(body: str | None) -> Mark | None:
    """Return an issue's mark; None if its first line is not one."""
    found = MARK.match(body or "")
    try:
        return Mark.model_validate_json(found[1]) if found else None
    except ValueError:
        return None


@dataclass(frozen=True)
class Finding:
    """A change for the worse that holds."""

    commit: str
    nearby: frozenset[str]
    """12 digits of the commits that may be named for the same change."""
    text: str
    """One sentence of Markdown."""

    @property
    def identity(self) -> str:
        """What the issue remembers of it."""
        return self.commit[:DIGITS] or UNKNOWN

    def is_told(self, told: Sequence[str]) -> bool:
        """Return whether an issue that told these told it."""
        return any(one in self.nearby or one == self.identity for one in told)


@dataclass(frozen=True)
class Wanted:
    """What the issue of a metric should say."""

    key: str
    title: str
    """A line without Markdown."""
    body: str
    """Markdown."""
    open: tuple[Finding, ...]
    """The newest first."""
    ended: Callable[[Sequence[str]], str]
    """Returns Markdown that says why the told changes are over; empty if they are not for sure."""


@dataclass
class Issues:
    """The issues of our author in a repository, read once."""

    hub: Hub
    repository: Repository
    login: str
    _known: list[Issue] | None = field(default=None, init=False)

    def keep(self, wanted: Wanted) -> str:
        """Open, edit, close or reopen a metric's issue, or leave it. Return what was done.

        Raises:
            Refused: the token may not read or write issues.
            MachineError: GitHub fails.
        """
        found = self._of(wanted.key)
        if not found:
            if not wanted.open:
                return ""
            found = self._opened(wanted)
            if len(found) == 1:
                return f"{found[0].html_url} opened"
        for second in found[1:]:
            self._close_second(second, found[0])
        issue = found[0]
        mark = mark_of(issue.body)
        assert mark is not None
        if wanted.open:
            return self._still_worse(issue, mark, wanted)
        over = wanted.ended(mark.told) if issue.state == "open" else ""
        if over:
            self._comment(issue, f"over {mark.opened}", over)
            self._edit(issue, mark.model_copy(update={"ended": True}), None, "closed")
            return f"{issue.html_url} closed"
        return ""

    def _still_worse(self, issue: Issue, mark: Mark, wanted: Wanted) -> str:
        fresh = [one for one in wanted.open if not one.is_told(mark.told)]
        again = issue.state == "closed" and (bool(fresh) or mark.ended)
        if issue.state == "closed" and not again:
            return ""  # A person closed it.
        opened = mark.opened + again
        for one in reversed(fresh or (wanted.open[:1] if again else ())):
            self._comment(issue, f"{one.identity} {opened}", one.text)
        told = [*mark.told, *(one.identity for one in reversed(fresh))][-MOST_TOLD:]
        now = mark.model_copy(update={"told": told, "ended": False, "opened": opened})
        changed = self._edit(issue, now, wanted, "open")
        done = "reopened" if again else "updated"
        return f"{issue.html_url} {done}" if changed else ""

    def _of(self, key: str) -> list[Issue]:
        """Return our issues of a key, the oldest first."""
        found = []
        for issue in self._ours():
            mark = mark_of(issue.body)
            if mark is not None and mark.key == key:
                found.append(issue)
        return sorted(found, key=lambda issue: issue.number)

    def _ours(self) -> list[Issue]:
        if self._known is None:
            listed = self.hub.read("the issues", self._listed)
            self._known = [
                issue
                for issue in listed
                if issue.pull_request is None and issue.user and issue.user.login == self.login
            ]
        return self._known

    def _listed(self) -> list[Issue]:
        pages = self.repository.get_issues(
            state="all",
            creator=self.login,  # type: ignore[arg-type]  # PyGithub takes a login too.
        )
        return list(islice(pages, MOST_ISSUES))

    def _opened(self, wanted: Wanted) -> list[Issue]:
        """Open an issue; return all that there are then: another job may have opened one too."""
        told = [one.identity for one in reversed(wanted.open)][-MOST_TOLD:]
        mark = Mark(version=1, key=wanted.key, told=told)

        def there() -> Issue | None:
            self._known = None
            return next(iter(self._of(wanted.key)), None)

        def post() -> Issue:
            return self.repository.create_issue(wanted.title, _body(mark, wanted.body))

        made = self.hub.write("a new issue", there, post)
        if made.user.login != self.login:
            self.login = made.user.login  # Learned from our issue if the token may not ask.
        self._known = None
        found = self._of(wanted.key)
        return found or [made]

    def _close_second(self, second: Issue, first: Issue) -> None:
        if second.state == "open":
            text = f"The same as #{first.number}, which is kept up to date."
            self._comment(second, "second", text)
            self.hub.write(
                f"issue #{second.number}",
                lambda: None,
                lambda: second.edit(state="closed", state_reason="not_planned"),
            )

    def _comment(self, issue: Issue, about: str, text: str) -> None:
        """Comment once about something, however often the job runs."""
        first = TOLD.format(about)
        body = f"{first}\n{text}"

        def there() -> bool | None:
            ours = (one for one in issue.get_comments() if one.user.login == self.login)
            return any(one.body.startswith(first) for one in ours) or None

        what = f"a comment on issue #{issue.number}"
        if self.hub.read(what, there) is None:
            self.hub.write(what, there, lambda: bool(issue.create_comment(body)))

    def _edit(
        self, issue: Issue, mark: Mark, wanted: Wanted | None, state: Literal["open", "closed"]
    ) -> bool:
        """Write what differs; return whether anything did. GitHub tells nobody of an edit."""
        body = _body(mark, wanted.body if wanted else _without_mark(issue.body))
        title = wanted.title if wanted else issue.title
        there = ((issue.body or "").replace("\r\n", "\n"), issue.title, issue.state)
        if there == (body, title, state):
            return False

        def post() -> None:
            if issue.state == state:
                issue.edit(title=title, body=body)
            else:
                reason = "reopened" if state == "open" else "completed"
                issue.edit(title=title, body=body, state=state, state_reason=reason)

        self.hub.write(f"issue #{issue.number}", lambda: None, post)
        return True


def _body(mark: Mark, text: str) -> str:
    return f"{mark.line}\n{text}"


def _without_mark(body: str | None) -> str:
    return MARK.sub("", (body or "").replace("\r\n", "\n"), count=1)
