"""Create or edit the single comment on a pull request.

GitHub does not reject an edit of a text that changed since it was read. So of two jobs that write
at once, one loses its section. A request may also take effect after its client gave up. So if other
jobs may write, a job checks again after growing pauses, until no earlier write can still arrive. Of
several comments of ours, the oldest takes the sections of the others.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import requests
from github.GithubException import GithubException
from github.IssueComment import IssueComment
from github.PullRequest import PullRequest

from canary.github.client import Hub, Refused
from canary.github.comment import Section, comment_of, has_sections, merged, parse

BOT = "github-actions[bot]"
"""Login of a workflow's token."""
MARKER = "<!-- rlhf-canary -->\n"
"""First line of our comment. Jobs of every name share it."""
PAUSES_S = (1.0, 2.0, 4.0, 8.0, 12.0, 15.0)
"""Between checks; together longer than the client's timeout of 30 s: by then every earlier write
has arrived or failed."""
ROUNDS = 20
"""Most writes while other jobs overwrite our sections; each round one succeeds."""


@dataclass(frozen=True)
class Written:
    """The result of writing a status or the comment."""

    url: str = ""
    note: str = ""
    """Why it was not written; empty if it was."""


def comment_author(hub: Hub) -> str:
    """Return the token's login. A workflow's token may not ask; it is github-actions[bot]."""
    try:
        return hub.github.get_user().login
    except (GithubException, requests.RequestException):
        return BOT


def find_all(pull: PullRequest, login: str) -> list[IssueComment]:
    """Return our comments, oldest first, by their first line and author."""
    found = [
        comment
        for comment in pull.get_issue_comments()
        if comment.user and comment.user.login == login and _plain(comment.body).startswith(MARKER)
    ]
    return sorted(found, key=lambda comment: comment.id)


def _plain(body: str) -> str:
    """Return a comment's text with the line breaks that we wrote."""
    return body.replace("\r\n", "\n")


def write_comment(
    hub: Hub,
    number: int,
    sections: Sequence[Section],
    login: str,
    jobs: int = 1,
) -> Written:
    """Create or edit the comment, unless there is a newer commit or a later run's answer.

    `jobs`: known number of jobs that write it; sections of other canaries reveal more.

    Raises:
        Refused: the token may not read or write comments.
        MachineError: GitHub fails.
    """
    what, url = f"the comment on #{number}", ""
    sha, keys = sections[0].sha, {one.key for one in sections}

    def ours() -> list[IssueComment]:
        return hub.read(what, lambda: find_all(pull, login))

    def put() -> IssueComment:
        return _put(pull, ours(), sections)  # Others may have written: each try reads again.

    for _ in range(ROUNDS):
        pull = hub.read(what, lambda: hub.repository.get_pull(number))
        if pull.head.sha != sha:
            newer = f"#{number} now has {pull.head.sha[:9]}, whose run will write it"
            return Written(note=f"the comment was not changed: {newer}")
        found = ours()
        try:
            comment = hub.write(what, put)
        except Refused as refused:
            if refused.status == 404 and found:
                continue  # Another job removed it as a duplicate.
            raise
        if merged([comment.body], sections) is None:
            note = "the comment was not changed: a later run has already written it"
            return Written(comment.html_url, note)
        url = comment.html_url
        for second in ours()[1:]:
            theirs = [one for one in parse(second.body) if one.sha == sha]
            if has_sections(comment.body, theirs):
                with suppress(Refused):  # Another job may have deleted it.
                    hub.write(what, second.delete)
        if comment.user.login != login:
            login = comment.user.login  # Learned from our comment if the token may not ask.
            continue
        there = [one.key for written in (*found, comment) for one in parse(written.body)]
        if _stays(hub, ours, sections, alone=jobs == 1 and keys.issuperset(there)):
            return Written(url)
    note = "other jobs kept overwriting the comment; see the step summary for the full answer"
    return Written(url, note)


def _put(
    pull: PullRequest, found: Sequence[IssueComment], sections: Sequence[Section]
) -> IssueComment:
    """Write the sections into the oldest of our comments, or into a new one."""
    together = merged([one.body for one in found], sections)
    if together is None:
        return found[0]
    body = MARKER + comment_of(together)
    if not found:
        return pull.create_issue_comment(body)
    if _plain(found[0].body) != body:
        found[0].edit(body)
    return found[0]


def _stays(
    hub: Hub, ours: Callable[[], list[IssueComment]], sections: Sequence[Section], *, alone: bool
) -> bool:
    """Return whether our only comment has the sections; unless alone, also after each pause."""
    # Vary the pauses, so that jobs that collided do not write at the same time again.
    slower = 1 + zlib.crc32(sections[0].key.encode()) % 5 / 10
    for pause in (0.0, *(() if alone else PAUSES_S)):
        if pause:
            hub.sleep(pause * slower)
        found = ours()
        if len(found) != 1 or not has_sections(found[0].body, sections):
            return False
    return True
