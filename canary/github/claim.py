"""Decide which run's answer a commit shows, and which run may replace it.

A status or check run belongs to a commit, and two pull requests may have the same commit: anyone
can push another's head commit to a fork. So the URL of our status (for a check run, the external
id) names the head repository. Runs of other repositories do not replace it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from github.Repository import Repository

from canary.errors import MachineError
from canary.github.client import Hub, Refused
from canary.github.status import Source, StatusText

SIGNED = re.compile(
    r"(?:/actions/runs/|^rlhf-canary/)(\d+)(?:(?:/attempts/|\.)(\d+))?"
    r"(?:#from=([\w./-]*)(?:&(\w+))?)?$",
    re.ASCII,
)
WORDS = ("accepted", "error")
RANKS = {"success": 1, "failure": 2, "error": 2}
"""Of two answers of the same run and attempt, the higher stays; `pending` is 0."""

Found = TypeVar("Found")


@dataclass(frozen=True)
class Posted:
    """What is known of an answer posted on a commit."""

    age: tuple[int, int] = (0, 0)
    """Run and attempt; (0, 0) if unknown."""
    origin: str = ""
    """owner/name of the head repository; empty if unknown."""
    word: str = ""
    """`accepted`, `error` or empty."""
    state: str = ""
    """The status's state or the check run's conclusion; empty while a check run is pending."""


def signed(place: str, source: Source, text: StatusText) -> str:
    """Append the signature, which `posted_answer` parses, to a run's URL or id."""
    if not (place and source.origin):
        return place
    word = "accepted" if text.accepted else text.state
    return f"{place}#from={source.origin}" + (f"&{word}" if word in WORDS else "")


def posted_answer(place: str | None, state: str | None = "") -> Posted:
    """Parse a posted answer's URL or external id."""
    found = SIGNED.search(place or "")
    if found is None:
        return Posted(state=state or "")
    run, attempt, origin, word = found.groups()
    return Posted((int(run), int(attempt or 1)), origin or "", word or "", state or "")


def lookup(
    hub: Hub,
    repository: Repository,
    source: Source,
    text: StatusText,
    what: str,
    get: Callable[[], Found],
) -> Found | None:
    """Read what is posted; None if that fails for a final answer on a branch of this repository:
    posting it matters more than knowing what it replaces.

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
    there: Posted,
) -> str:
    """Return why the posted answer must stay; empty if this run may replace it.

    Jobs of one run may share a name; then their worst answer stays.

    Raises:
        MachineError: GitHub cannot be reached.
    """
    if not (there.origin and source.origin) or there.origin == source.origin:
        if not source.run_id or there.age < source.age:
            return ""
        if there.age > source.age:
            return f"a later run has already set {what}"
        if RANKS.get(there.state, 0) > RANKS.get(text.state, 0):
            return f"another job of this run has already set {what} to {there.state}"
        return ""
    if _comes_first(hub, repository, source, there.origin):
        return ""
    return f"{what} was not changed: it belongs to {there.origin}, which has the same commit"


def _comes_first(hub: Hub, repository: Repository, source: Source, other: str) -> bool:
    """Return whether this run's repository has precedence over `other` on this commit.

    The gated repository precedes every fork. Of two forks, the one whose open pull request is by
    the commit's author precedes; otherwise the one with the older pull request.
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
