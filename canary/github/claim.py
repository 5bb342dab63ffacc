"""Whose answer stands on a commit, and which run may replace it.

Status and check run belong to a commit, and two pull requests may have the same one: a stranger can
push another's head commit to a fork. So each answer of ours says in its address which repository
the commit came from (a check run in its external id), and a run of another one leaves it alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from github.Repository import Repository

from canary.errors import MachineError
from canary.github.client import Hub, Refused
from canary.github.source import Source
from canary.github.status import StatusText

SIGNED = re.compile(
    r"(?:/actions/runs/|^rlhf-canary/)(\d+)(?:(?:/attempts/|\.)(\d+))?"
    r"(?:#from=([\w./-]*)(?:&(\w+))?)?$",
    re.ASCII,
)
WORDS = ("accepted", "error")
RANKS = {"success": 1, "failure": 2, "error": 2}
"""Of two answers of one run and attempt the higher stays; `pending` is 0."""

Found = TypeVar("Found")


@dataclass(frozen=True)
class Standing:
    """What an answer on a commit says of itself."""

    age: tuple[int, int] = (0, 0)
    """Run and attempt; (0, 0) where it names none."""
    origin: str = ""
    """owner/name of the head repository; empty where it says nothing."""
    word: str = ""
    """`accepted` or `error`, where it is one of them."""
    state: str = ""
    """The state of the status, or the conclusion of the check run; empty while it is pending."""


def signed(place: str, source: Source, text: StatusText) -> str:
    """A run's address or number, followed by what `standing` reads."""
    if not (place and source.origin):
        return place
    word = "accepted" if text.accepted else text.state
    return f"{place}#from={source.origin}" + (f"&{word}" if word in WORDS else "")


def standing(place: str | None, state: str | None = "") -> Standing:
    """What the answer with this address or number says of itself."""
    found = SIGNED.search(place or "")
    if found is None:
        return Standing(state=state or "")
    run, attempt, origin, word = found.groups()
    return Standing((int(run), int(attempt or 1)), origin or "", word or "", state or "")


def looked(
    hub: Hub,
    repository: Repository,
    source: Source,
    text: StatusText,
    what: str,
    get: Callable[[], Found],
) -> Found | None:
    """What is there; None where GitHub does not say it and the answer is written all the same.

    The repository's own final answer is worth more than the look at what it replaces.

    Raises:
        Refused, MachineError: as `Hub.read`, for a fork's run and for `pending`.
    """
    try:
        return hub.read(what, get)
    except (Refused, MachineError):
        if text.state == "pending" or source.origin not in ("", repository.full_name):
            raise
        return None


def why_it_stays(
    hub: Hub,
    repository: Repository,
    source: Source,
    text: StatusText,
    what: str,
    there: Standing,
) -> str:
    """Why the answer that is there is left alone; empty where this run may replace it.

    Jobs of one run may share a name: the worst of their answers stays.

    Raises:
        MachineError: GitHub cannot be reached.
    """
    if not (there.origin and source.origin) or there.origin == source.origin:
        if not source.run_id or there.age < source.age:
            return ""
        if there.age > source.age:
            return f"a later run has set {what} already"
        if RANKS.get(there.state, 0) > RANKS.get(text.state, 0):
            return f"another job of this run has set {what} to {there.state} already"
        return ""
    if _comes_first(hub, repository, source, there.origin):
        return ""
    return f"{what} stays as it is: it belongs to {there.origin}, which has the same commit"


def _comes_first(hub: Hub, repository: Repository, source: Source, other: str) -> bool:
    """Whether this run's repository has the better claim to the commit.

    The gated repository comes before every fork. Of two forks the one comes first whose open pull
    request is by the commit's author, then the one whose pull request is older.
    """
    if repository.full_name in (source.origin, other):
        return source.origin == repository.full_name
    what = f"the pull requests of {source.sha[:9]}"
    try:
        pulls = hub.read(
            what,
            lambda: [
                pull
                for pull in repository.get_pulls(state="open")
                if pull.head.sha == source.sha and pull.head.repo
            ],
        )
        commit = hub.read(what, lambda: repository.get_commit(source.sha))
    except Refused:
        return False
    author = (commit.raw_data.get("author") or {}).get("login")
    claims = [
        (pull.user.login != author, pull.number, pull.head.repo.full_name)
        for pull in pulls
        if pull.head.repo.full_name in (source.origin, other)
    ]
    return bool(claims) and min(claims)[2] == source.origin
