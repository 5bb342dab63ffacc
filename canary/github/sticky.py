"""The one comment on a pull request: found among all of them, made or edited, never doubled.

GitHub cannot refuse an edit because the text has changed since it was read: of two jobs that write
at once one loses its section. And a request may be carried out after the client gave it up. So a
job that is not alone looks again, at growing pauses, until no write that began before its own can
still arrive; and of several comments of ours the oldest takes the sections of the others.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import requests
from github.GithubException import GithubException
from github.IssueComment import IssueComment
from github.PullRequest import PullRequest
from github.Repository import Repository

from canary.github.client import Hub, Refused
from canary.github.comment import MARKER, Section, has_sections, merged, parse

BOT = "github-actions[bot]"
"""Who a workflow's own token writes as."""
PAUSES_S = (1.0, 2.0, 4.0, 8.0, 12.0, 15.0)
"""Between looks: together longer than the client's timeout of 30 s, within which a write that was
begun before ours arrives or is given up."""
ROUNDS = 20
"""Writes, where jobs of a matrix overwrite each other's sections; each round one of them stays."""


@dataclass(frozen=True)
class Sticky:
    """What became of the comment."""

    url: str
    note: str = ""
    """Why it was left alone; empty where it was written."""


def own_login(hub: Hub, given: str = "") -> str:
    """Whom the token writes as. A workflow's token may not ask, and is github-actions[bot]."""
    if given:
        return given
    try:
        return hub.github.get_user().login
    except (GithubException, requests.RequestException):
        return BOT


def write_comment(
    hub: Hub,
    repository: Repository,
    number: int,
    sections: Sequence[Section],
    login: str,
    jobs: int = 1,
) -> Sticky:
    """Creates or edits the comment, unless a newer commit or a later run has spoken.

    `jobs`: how many write it at once, as far as is known; other canaries' sections tell of more.

    Raises:
        Refused: the token may not read or write comments.
        MachineError: GitHub does not take it.
    """
    what = f"the comment on #{number}"
    url = ""
    for _ in range(ROUNDS):
        pull = hub.read(what, lambda: repository.get_pull(number))
        if pull.head.sha != sections[0].sha:
            note = (
                f"the comment stays as it is: #{number} now has {pull.head.sha[:9]}, "
                "and that commit's run writes it"
            )
            return Sticky("", note)
        writing = _Writing(hub, what, pull, sections, login)
        try:
            comment = writing.written()
        except Refused as refused:
            if refused.status == 404 and writing.edits:
                continue  # Another job has removed it, as a second one.
            raise
        if comment is None:
            note = "the comment stays as it is: a later run has written it already"
            return Sticky(url or writing.url, note)
        url = comment.html_url
        if comment.user.login != login:
            login = comment.user.login  # A token that may not ask learns it from its own comment.
            continue
        pauses = PAUSES_S if jobs > 1 or writing.in_company else ()
        if writing.stays(pauses):
            return Sticky(url)
    note = "other jobs kept overwriting the comment; the step summary has the whole answer"
    return Sticky(url, note)


def find_all(pull: PullRequest, login: str) -> list[IssueComment]:
    """Our comments, oldest first: their first line is the mark, and their author is us."""
    found = [
        comment
        for comment in pull.get_issue_comments()
        if comment.user and comment.user.login == login and comment.body.startswith(MARKER)
    ]
    return sorted(found, key=lambda comment: comment.id)


@dataclass
class _Writing:
    """One round: the sections into the oldest comment of ours, the others away."""

    hub: Hub
    what: str
    pull: PullRequest
    sections: Sequence[Section]
    login: str
    url: str = ""
    posts: int = 0
    edits: int = 0
    others: bool = False
    """Whether sections of other canaries were seen: their jobs may write too."""

    @property
    def in_company(self) -> bool:
        """Whether another write may still arrive; of several own posts, an earlier one."""
        return self.others or self.posts > 1

    def written(self) -> IssueComment | None:
        """Writes; None where a later run has answered already.

        Raises:
            Refused, MachineError: as `Hub.write`.
        """
        found = self.hub.read(self.what, self._ours)
        if found and self._body(found) is None:
            self.url = found[0].html_url
            return None
        comment = self.hub.write(self.what, self._there, self._put)
        for second in self.hub.read(self.what, self._ours)[1:]:
            if has_sections(comment.body, _speaking(second, self.sections[0].sha)):
                with suppress(Refused):  # Another job may have removed it.
                    self.hub.write(self.what, lambda: None, second.delete)
        return comment

    def stays(self, pauses: Sequence[float]) -> bool:
        """Whether one comment of ours holds the sections, now and after each pause."""
        # Jobs that lost their sections at once shall not write at once again.
        slower = 1 + zlib.crc32(self.sections[0].key.encode()) % 5 / 10
        for pause in (0.0, *pauses):
            if pause:
                self.hub.sleep(pause * slower)
            found = self.hub.read(self.what, self._ours)
            if len(found) != 1 or not has_sections(found[0].body, self.sections):
                return False
        return True

    def _ours(self) -> list[IssueComment]:
        return find_all(self.pull, self.login)

    def _there(self) -> IssueComment | None:
        found = self._ours()
        return found[0] if found and has_sections(found[0].body, self.sections) else None

    def _put(self) -> IssueComment:
        """Reads anew before each try: in between others may have written."""
        found = self._ours()
        body = self._body(found)
        if body is None:
            return found[0]
        if not found:
            self.posts += 1
            return self.pull.create_issue_comment(body)
        if found[0].body.replace("\r\n", "\n") != body:
            self.edits += 1
            found[0].edit(body)
        return found[0]

    def _body(self, found: Sequence[IssueComment]) -> str | None:
        """The text with our sections and those of every comment in it; None as `merged`."""
        own = {section.key for section in self.sections}
        together = found[0].body if found else ""
        for comment in found[1:]:
            speaking = _speaking(comment, self.sections[0].sha)
            together = (merged(together, speaking) if speaking else None) or together
        self.others |= any(section.key not in own for section in parse(together))
        return merged(together, self.sections)


def _speaking(comment: IssueComment, sha: str) -> list[Section]:
    """What a comment says of this commit."""
    return [one for one in parse(comment.body) if one.sha == sha and one.key]
