"""The one comment on a pull request: found among all of them, made or edited, never doubled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import requests
from github.GithubException import GithubException
from github.IssueComment import IssueComment
from github.PullRequest import PullRequest
from github.Repository import Repository

from canary.publish.comment import MARKER, Section, has_sections, merged
from canary.publish.hub import Hub

BOT = "github-actions[bot]"
"""Who a workflow's own token writes as."""
ROUNDS = 5
"""Edits, where jobs of a matrix write at once and overwrite each other's sections."""


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
    hub: Hub, repository: Repository, number: int, sections: Sequence[Section], login: str
) -> Sticky:
    """Creates or edits the comment, unless a newer commit or a later run has spoken.

    Raises:
        Refused: the token may not read or write comments.
        MachineError: GitHub does not take it.
    """
    what = f"the comment on #{number}"
    url = ""
    for round_ in range(ROUNDS):
        pull = hub.read(what, lambda: repository.get_pull(number))
        if pull.head.sha != sections[0].sha:
            return Sticky("", f"#{number} has moved on to {pull.head.sha[:9]}: its own run answers")
        comment = hub.read(what, _finder(pull, login))
        body = merged(comment.body if comment else "", sections)
        if body is None:
            return Sticky(comment.html_url if comment else "", "a later run has answered already")
        made = comment is None
        comment = _put(hub, what, pull, comment, body, login)
        if made and _withdrawn(hub, what, pull, comment, login):
            continue
        url = comment.html_url
        if has_sections(hub.read(what, _reader(pull, comment)), sections):
            return Sticky(url)
        hub.sleep(1.0 + round_ * (1 + sections[0].age[0] % 7) / 4)
    return Sticky(url, "other jobs kept writing the comment; look at the summary")


def _finder(pull: PullRequest, login: str) -> Callable[[], IssueComment | None]:
    return lambda: find(pull, login)


def find(pull: PullRequest, login: str) -> IssueComment | None:
    """Our comment, on whichever page: its first line is the mark, and its author is us."""
    for comment in pull.get_issue_comments():
        if comment.user and comment.user.login == login and comment.body.startswith(MARKER):
            return comment
    return None


def _put(
    hub: Hub, what: str, pull: PullRequest, comment: IssueComment | None, body: str, login: str
) -> IssueComment:
    if comment is None:
        return hub.write(what, _finder(pull, login), lambda: pull.create_issue_comment(body))
    if comment.body.replace("\r\n", "\n") == body:
        return comment
    known = comment

    def edited() -> IssueComment:
        known.edit(body)
        return known

    return hub.write(what, lambda: None, edited)


def _withdrawn(hub: Hub, what: str, pull: PullRequest, comment: IssueComment, login: str) -> bool:
    """Whether another job of a matrix made the comment in the same moment; then ours goes."""
    first = hub.read(what, _finder(pull, login))
    if first is None or first.id == comment.id:
        return False
    hub.write(what, lambda: None, comment.delete)
    return True


def _reader(pull: PullRequest, comment: IssueComment) -> Callable[[], str]:
    return lambda: pull.get_issue_comment(comment.id).body
