"""Time arms in rounds, one launch of each per round in alternating order, and compare them.

Each launch is one sample. A ratio compares two launches of one round, so that slow changes of the
machine cancel. It is given only if both did the same work.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from canary.compare.timing.estimate import paired_estimate, spread_of
from canary.ladder.site import LaunchResult
from canary.record.bottlenecks import one_line
from canary.record.bottlenecks.common import too_short
from canary.record.phases import shown_phases
from canary.record.step_row import Row
from canary.record.types import RunRecord

ALPHA = 0.025
"""Error at each end of a 95% interval."""


@dataclass(frozen=True)
class SpeedUp:
    """A ratio of samples per second, with a 95% interval if there was more than one round."""

    ratio: float
    low: float | None
    high: float | None
    rounds: int

    @property
    def open(self) -> bool:
        """Whether the interval includes 1, so that neither a gain nor a loss is sure."""
        return self.low is not None and self.high is not None and self.low <= 1 <= self.high


def speed_up(faster: Sequence[float], slower: Sequence[float]) -> SpeedUp:
    """Return the ratio of two arms' speeds, paired by round; all are above 0."""
    logs = [math.log(one / other) for one, other in zip(faster, slower, strict=True)]
    spread = spread_of(logs, "rounds")
    if spread is None:
        return SpeedUp(math.exp(logs[0]), None, None, 1)
    found = paired_estimate(logs, spread)
    low, high = found.lower(ALPHA), found.upper(1 - ALPHA)
    return SpeedUp(math.exp(found.change), math.exp(low), math.exp(high), len(logs))


@dataclass(frozen=True)
class Figures:
    """Figures of one arm, each the median of its launches; None: not measured."""

    samples_per_s: float
    tokens_per_s: float | None = None
    step_s: float | None = None
    gpu_pct: float | None = None
    cpu_pct: float | None = None
    """Percent of one core, over the process tree."""
    memory_mb: float | None = None
    gil_share: float | None = None
    """Largest possible share of the computing time that was waiting for Python's lock."""


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


@dataclass
class Arm:
    """A level, timed once per round."""

    label: str
    start: Callable[[], LaunchResult]
    ran: list[LaunchResult] = field(default_factory=list)

    @property
    def failed(self) -> str:
        """Why a launch did not complete; empty if all did."""
        return next((one.problem for one in self.ran if one.problem), "")

    @property
    def speeds(self) -> list[float]:
        """Samples per second of its launches."""
        return [one.speed for one in self.ran if one.speed]

    @property
    def records(self) -> list[RunRecord]:
        """The records of its completed launches."""
        return [one.record for one in self.ran if one.record is not None and not one.problem]

    @property
    def figures(self) -> Figures | None:
        """The figures of its completed launches; None without any."""
        if not self.records:
            return None
        perfs = [record.perf for record in self.records]
        return Figures(
            samples_per_s=_median(perf.samples_per_sec for perf in perfs) or math.nan,
            tokens_per_s=_median(perf.approx_tokens_per_sec for perf in perfs),
            step_s=_median(perf.step_time.mean for perf in perfs),
            gpu_pct=_median(perf.gpu_utilization_avg for perf in perfs),
            cpu_pct=_median(perf.cpu_utilization_avg for perf in perfs),
            memory_mb=_median(perf.max_mem_mb for perf in perfs),
            gil_share=_median(record.host.gil_contention for record in self.records),
        )


def time_rounds(
    arms: Sequence[Arm],
    rounds: int,
    say: Callable[[str], None],
    ended: Callable[[int], None],
) -> None:
    """Run every arm once per round. An arm that failed has no ratio and is not run again.

    `ended`: is told after each round how many there were.
    """
    for number in range(rounds):
        for arm in arms if number % 2 == 0 else reversed(arms):
            if arm.failed:
                continue
            what = f"round {number + 1} of {rounds}: {arm.label}"
            say(what)
            launch = arm.start()
            arm.ran.append(launch)
            said = f"{launch.speed:,.1f} samples/s" if launch.speed else launch.problem
            say(f"{what}: {said if launch.speed else f'did not run: {said}'}")
        ended(number + 1)


def problem_of(arm: Arm, reference: Arm) -> str:
    """Return why two arms have no ratio; empty if they have one."""
    if arm.failed:
        return arm.failed
    if reference.failed:
        return f"{reference.label} did not run: {reference.failed}"
    if len(arm.speeds) != len(reference.speeds) or not arm.speeds:
        return "a launch has no speed: it has too few steps after warm-up"
    for one, other in zip(arm.ran, reference.ran, strict=True):
        if difference := unequal_work(other.rows, one.rows):
            return f"unequal work: {difference}"
    return ""


def ratio_of(arm: Arm, reference: Arm) -> SpeedUp | None:
    """Return how much faster an arm is; None if `problem_of` gives a reason."""
    return None if problem_of(arm, reference) else speed_up(arm.speeds, reference.speeds)


COUNTS = {
    "samples": "sequences",
    "input_tokens": "tokens without padding",
    "label_tokens": "label tokens",
    "completion_tokens": "completion tokens",
    "updates": "updates",
}
"""Counts of a step's row that measure the work of the job; padding does not count."""
WHERE_BOTH = frozenset({"input_tokens"})
"""Compared only if both launches count it: trl's PPO does not count its input."""


def unequal_work(reference: Sequence[Row], other: Sequence[Row]) -> str:
    """Describe the first difference from the work of the reference's rows; empty if it is equal."""
    if len(reference) != len(other):
        return f"{len(other)} steps instead of {len(reference)}"
    for key, words in COUNTS.items():
        wanted, found = _counted(reference, key), _counted(other, key)
        if bool(wanted) != bool(found):
            if key in WHERE_BOTH:
                continue
            return f"{'this launch' if wanted else 'the reference'} does not count its {words}"
        for step, (before, after) in enumerate(zip(wanted, found, strict=True), 1):
            if before != after:
                return f"{after:,.0f} {words} in step {step} instead of {before:,.0f}"
    return ""


def _counted(rows: Sequence[Row], key: str) -> list[float]:
    """Return a count of each step; nothing if a step lacks it."""
    values = [row.get(key, (row.get("rl") or {}).get(key)) for row in rows]
    known = [float(value) for value in values if isinstance(value, int | float)]
    return known if len(known) == len(values) else []


def bottleneck_of(records: Sequence[RunRecord]) -> str:
    """Return one line about the launch of median speed: its worst bottleneck. Without one, name the
    phase that took longest."""
    order = sorted(records, key=lambda one: one.perf.samples_per_sec or 0.0)
    record = order[(len(order) - 1) // 2]
    if record.bottlenecks:
        return one_line(record.bottlenecks[0])
    short, phases = too_short(record), shown_phases(record.phases)
    found = f"not judged: {short}" if short else "none found"
    if not phases:
        return found
    name = max(phases, key=lambda phase: phases[phase])
    return f"{found}; {name} takes {100 * phases[name] / sum(phases.values()):.0f}% of the step"
