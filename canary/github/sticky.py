"""Create or edit the single comment on a pull request.

A request may take effect after its client gave up, so there may be several comments of ours. Each
run keeps the oldest and deletes the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import requests
from github.GithubException import GithubException
from github.IssueComment import IssueComment
from github.PullRequest import PullRequest
from github.Repository import Repository

from canary.github.client import Hub, Refused
from canary.github.comment import Section, comment_of, is_later

BOT = "github-actions[bot]"
"""Login of a workflow's token."""
ROUNDS = 3
"""Most tries, if another run removes the comment meanwhile or the token's login is new to us."""


@dataclass(frozen=True)
class Sticky:
    """The result of writing the comment."""

    url: str
    note: str = ""
    """Why it was not written; empty if it was."""


def comment_author(hub: Hub) -> str:
    """Return the token's login. A workflow's token may not ask; it is github-actions[bot]."""
    try:
        return hub.github.get_user().login
    except (GithubException, requests.RequestException):
        return BOT


def marker(name: str) -> str:
    """Return the first line of the comment for a job of this name."""
    return f"<!-- {name} -->\n"


def find_all(pull: PullRequest, login: str, name: str) -> list[IssueComment]:
    """Return our comments, oldest first, by their first line and author."""
    found = [
        comment
        for comment in pull.get_issue_comments()
        if comment.user
        and comment.user.login == login
        and _plain(comment.body).startswith(marker(name))
    ]
    return sorted(found, key=lambda comment: comment.id)


def _plain(body: str) -> str:
    """Return a comment's text with the line breaks that we wrote."""
    return body.replace("\r\n", "\n")


def write_comment(
    hub: Hub,
    repository: Repository,
    number: int,
    sections: Sequence[Section],
    login: str,
    name: str,
) -> Sticky:
    """Create or edit the comment, unless there is a newer commit or a later run's answer.

    Raises:
        Refused: the token may not read or write comments.
        MachineError: GitHub fails.
    """
    what = f"the comment on #{number}"
    body = marker(name) + comment_of(sections)
    pull = hub.read(what, lambda: repository.get_pull(number))
    if pull.head.sha != sections[0].sha:
        newer = f"#{number} now has {pull.head.sha[:9]}, whose run will write it"
        return Sticky("", f"the comment was not changed: {newer}")

    def ours() -> list[IssueComment]:
        return find_all(pull, login, name)

    def there() -> IssueComment | None:
        return next((one for one in ours() if _plain(one.body) == body), None)

    url = ""
    for _ in range(ROUNDS):
        found = hub.read(what, ours)
        if any(is_later(one.body, sections) for one in found):
            note = "the comment was not changed: a later run has already written it"
            return Sticky(url or found[0].html_url, note)

        def put(found: list[IssueComment] = found) -> IssueComment:
            if not found:
                return pull.create_issue_comment(body)
            found[0].edit(body)
            return found[0]

        try:
            comment = hub.write(what, there, put)
        except Refused as refused:
            if refused.status == 404 and found:
                continue  # Another run removed it as a duplicate.
            raise
        url = comment.html_url
        for second in hub.read(what, ours)[1:]:
            with suppress(Refused):  # Another run may have deleted it.
                hub.write(what, lambda: None, second.delete)
        if comment.user.login == login:
            return Sticky(url)
        login = comment.user.login  # Learned from our comment if the token may not ask.
    return Sticky(url, "the comment keeps disappearing; see the step summary for the full answer")
