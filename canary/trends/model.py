"""What is known of a history: metrics over runs, their levels, and where they changed.

A *series* is one metric over the runs of one drawer (a canary on a machine), oldest first. A
*level* is a stretch of runs in which nothing changed. A *change point* is the first run of a new
level.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Standing = Literal["confirmed", "returned", "accepted"]
"""`confirmed`: at least three runs after it show it. `returned`: a later level is back where it was
before. `accepted`: a person accepted it."""


@dataclass(frozen=True)
class StoredPoint:
    """One run of a series."""

    run_id: str
    commit: str
    """Full sha; empty if unknown."""
    start: str
    """ISO 8601, UTC."""
    value: float | None
    """In the metric's unit; None: this run has no such number."""
    period: int | None
    """None for a red run."""
    verdict: str
    accepted: bool


@dataclass(frozen=True)
class Level:
    """A stretch of runs of one level; `first` and `last` are places in the series."""

    first: int
    last: int
    center: float
    """In the metric's unit."""
    interval: tuple[float, float]
    """Of the center, 95%."""


@dataclass(frozen=True)
class MachineChange:
    """A fact of the machine that differs between two neighbouring runs."""

    name: str
    """Such as driver, image, gpu, cpu, or a package."""
    before: str
    now: str


@dataclass(frozen=True)
class ChangePoint:
    """Where a series began a new level."""

    place: int
    """Place of the first run of the new level."""
    percent: float
    """Change of the level; plus is more. At most 1,000,000, also if the level before is 0."""
    interval: tuple[float, float]
    """Of `percent`, at the error level that the family's budget left to it."""
    worse: bool
    standing: Standing
    runs_after: int
    """Runs with a value from `place` on, within the new level."""
    within: tuple[int, int]
    """First and last place where the change may have happened (95%)."""
    machine: tuple[MachineChange, ...]
    """What changed on the machine there: the first suspects."""


@dataclass(frozen=True)
class Series:
    """One metric over the runs of a drawer, and what was found in it."""

    metric: str
    """As in checks and gates: `step_time_median`, `max_memory`, `tokens_per_sec`, `final_loss`, or
    a metric of `metrics:`."""
    title: str
    unit: str
    lower_is_better: bool | None
    """None: neither direction is worse."""
    points: tuple[StoredPoint, ...]
    levels: tuple[Level, ...]
    changes: tuple[ChangePoint, ...]
    notes: tuple[str, ...] = ()
    """Why something could not be judged."""


@dataclass(frozen=True)
class HistoryTrends:
    """All series of one drawer."""

    canary: str
    machine: str
    series: tuple[Series, ...]
    """Worst first."""
    notes: tuple[str, ...] = ()
    machine_changes: tuple[tuple[int, tuple[MachineChange, ...]], ...] = ()
    """(place, what changed on the machine before that run), in order; equal for all series."""
    config_file: str = ""
    """Path of the newest run's config, as it was given; empty if unknown."""
