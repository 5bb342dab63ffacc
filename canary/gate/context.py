"""What the trusted half works with: the clients it was handed, and the case it judges."""

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
    """Everything outside this process that the half touches."""

    hub: Hub
    remote: Remote
    job: Job
    now: Callable[[], datetime]


@dataclass(frozen=True)
class Case:
    """What is judged, on which commit, by which commit's config."""

    settings: ReportSettings
    intent: Intent
    repository: Repository
    pull: PullRequest | None
    source: Source
    base_sha: str


def allowed(get: Callable[[], Found]) -> Found:
    """A read without which nothing can be judged: its refusal is an error of this run.

    Raises:
        MachineError: the token may not.
    """
    try:
        return get()
    except Refused as refused:
        raise MachineError(
            str(refused), "give the job `contents: read` and `pull-requests: read`"
        ) from refused
