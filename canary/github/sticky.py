"""Create or edit the single comment on a pull request.

GitHub does not reject an edit of a text that changed since it was read. So of two jobs that write
at once, one loses its section. A request may also take effect after its client gave up. So if other
jobs may write, a job checks again after growing pauses, until no earlier write can still arrive. Of
several comments of ours, the oldest takes the sections of the others.
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
"""Login of a workflow's token."""
PAUSES_S = (1.0, 2.0, 4.0, 8.0, 12.0, 15.0)
"""Between checks; together longer than the client's timeout of 30 s: by then every earlier write
has arrived or failed."""
ROUNDS = 20
"""Most writes while matrix jobs overwrite each other's sections; each round one succeeds."""


@dataclass(frozen=True)
class Sticky:
    """The result of writing the comment."""

    url: str
    note: str = ""
    """Why it was not written; empty if it was."""


def comment_author(hub: Hub, given: str = "") -> str:
    """Return the token's login. A workflow's token may not ask; it is github-actions[bot]."""
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
    """Create or edit the comment, unless there is a newer commit or a later run's answer.

    `jobs`: known number of jobs that write it; sections of other canaries reveal more.

    Raises:
        Refused: the token may not read or write comments.
        MachineError: GitHub fails.
    """
    what = f"the comment on #{number}"
    url = ""
    for _ in range(ROUNDS):
        pull = hub.read(what, lambda: repository.get_pull(number))
        if pull.head.sha != sections[0].sha:
            note = (
                f"the comment was not changed: #{number} now has {pull.head.sha[:9]}, "
                "whose run will write it"
            )
            return Sticky("", note)
        writing = _Writing(hub, what, pull, sections, login)
        try:
            comment = writing.written()
        except Refused as refused:
            if refused.status == 404 and writing.edits:
                continue  # Another job removed it as a duplicate.
            raise
        if comment is None:
            note = "the comment was not changed: a later run has already written it"
            return Sticky(url or writing.url, note)
        url = comment.html_url
        if comment.user.login != login:
            login = comment.user.login  # Learned from our comment if the token may not ask.
            continue
        pauses = PAUSES_S if jobs > 1 or writing.others_may_write else ()
        if writing.stays(pauses):
            return Sticky(url)
    note = "other jobs kept overwriting the comment; see the step summary for the full answer"
    return Sticky(url, note)


def find_all(pull: PullRequest, login: str) -> list[IssueComment]:
    """Return our comments, oldest first, by their first line and author."""
    found = [
        comment
        for comment in pull.get_issue_comments()
        if comment.user and comment.user.login == login and comment.body.startswith(MARKER)
    ]
    return sorted(found, key=lambda comment: comment.id)


@dataclass
class _Writing:
    """One round: write the sections into our oldest comment and delete the others."""

    hub: Hub
    what: str
    pull: PullRequest
    sections: Sequence[Section]
    login: str
    url: str = ""
    posts: int = 0
    edits: int = 0
    others: bool = False
    """Whether there were sections of other canaries, whose jobs may write too."""

    @property
    def others_may_write(self) -> bool:
        """Whether another write may still arrive; if we posted several times, an earlier post."""
        return self.others or self.posts > 1

    def written(self) -> IssueComment | None:
        """Write the comment; None if a later run has already answered.

        Raises:
            Refused, MachineError: as `Hub.write`.
        """
        found = self.hub.read(self.what, self._ours)
        if found and self._body(found) is None:
            self.url = found[0].html_url
            return None
        comment = self.hub.write(self.what, self._there, self._put)
        for second in self.hub.read(self.what, self._ours)[1:]:
            if has_sections(comment.body, _sections_for(second, self.sections[0].sha)):
                with suppress(Refused):  # Another job may have deleted it.
                    self.hub.write(self.what, lambda: None, second.delete)
        return comment

    def stays(self, pauses: Sequence[float]) -> bool:
        """Return whether our only comment has the sections, now and after each pause."""
        # Vary the pauses, so that jobs that collided do not write at the same time again.
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
        """Read again before each try, because others may have written."""
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
        """Return the text with our sections and those of every comment; None as `merged`."""
        keys = {section.key for section in self.sections}
        together = found[0].body if found else ""
        for comment in found[1:]:
            others = _sections_for(comment, self.sections[0].sha)
            together = (merged(together, others) if others else None) or together
        self.others |= any(section.key not in keys for section in parse(together))
        return merged(together, self.sections)


def _sections_for(comment: IssueComment, sha: str) -> list[Section]:
    """Return a comment's sections of this commit."""
    return [one for one in parse(comment.body) if one.sha == sha]
