"""What the reporting job works with: its clients, and the case that it judges."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from github.PullRequest import PullRequest
from github.Repository import Repository

from canary.baseline.branch import Remote
from canary.errors import MachineError
from canary.gate.inputs import ReportSettings
from canary.github.client import Hub, Refused
from canary.github.event import Intent
from canary.github.source import Source
from canary.github.workflow import Job

Found = TypeVar("Found")


@dataclass(frozen=True)
class World:
    """The reporting job's access to GitHub, git, the runner and the clock; tests replace it."""

    hub: Hub
    remote: Remote
    job: Job
    now: Callable[[], datetime]


@dataclass(frozen=True)
class Case:
    """What is judged, on which commit, with which base commit."""

    settings: ReportSettings
    intent: Intent
    repository: Repository
    pull: PullRequest | None
    source: Source
    base_sha: str


def allowed(get: Callable[[], Found]) -> Found:
    """Return a read that judging needs.

    Raises:
        MachineError: GitHub refuses the token.
    """
    try:
        return get()
    except Refused as refused:
        raise MachineError(
            str(refused), "give the job `contents: read` and `pull-requests: read`"
        ) from refused
