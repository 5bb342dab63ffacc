"""Compute figures of levels, and ratios with intervals, from their launches. Pure.

Each launch is one sample. A ratio compares two launches of one round, so that slow changes of the
machine cancel.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from canary.compare.timing.estimate import paired_estimate, spread_of
from canary.record.bottlenecks import one_line
from canary.record.bottlenecks.common import too_short
from canary.record.phases import shown_phases
from canary.record.types import Bottleneck, RunRecord

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

    @property
    def sure(self) -> bool:
        """Whether the interval lies above 1, so that the gain is sure."""
        return self.low is not None and self.low > 1


def speed_up(faster: Sequence[float], slower: Sequence[float]) -> SpeedUp:
    """Return the ratio of two levels' speeds, paired by round; all are above 0."""
    logs = [math.log(one / other) for one, other in zip(faster, slower, strict=True)]
    spread = spread_of(logs, "rounds")
    if spread is None:
        return SpeedUp(math.exp(logs[0]), None, None, 1)
    found = paired_estimate(logs, spread)
    low, high = found.lower(ALPHA), found.upper(1 - ALPHA)
    return SpeedUp(math.exp(found.change), math.exp(low), math.exp(high), len(logs))


def share_of_gain(part: float, whole: float) -> float | None:
    """Return the share of `part` in the gain `whole`, in logarithms because factors multiply; None
    if `whole` is no gain."""
    return math.log(part) / math.log(whole) if whole > 1 else None


@dataclass(frozen=True)
class Figures:
    """Figures of one level, each the median of its launches; None: not measured."""

    samples_per_s: float
    tokens_per_s: float | None = None
    completion_tokens_per_s: float | None = None
    step_s: float | None = None
    gpu_pct: float | None = None
    cpu_pct: float | None = None
    """Percent of one core, over the process tree."""
    memory_mb: float | None = None
    memory_kind: str | None = None
    gil_share: float | None = None
    """Largest possible share of the computing time that was waiting for Python's lock."""
    phases: Mapping[str, float] = field(default_factory=dict)
    """Seconds per step."""


def figures_of(records: Sequence[RunRecord]) -> Figures:
    """Return the figures of one level's completed launches."""
    perfs = [record.perf for record in records]
    seconds = _median([perf.seconds_per_completion_token for perf in perfs])
    names = sorted({name for record in records for name in record.phases})
    return Figures(
        samples_per_s=_median([perf.samples_per_sec for perf in perfs]) or math.nan,
        tokens_per_s=_median([perf.approx_tokens_per_sec for perf in perfs]),
        completion_tokens_per_s=1 / seconds if seconds else None,
        step_s=_median([perf.step_time.mean for perf in perfs]),
        gpu_pct=_median([perf.gpu_utilization_avg for perf in perfs]),
        cpu_pct=_median([perf.cpu_utilization_avg for perf in perfs]),
        memory_mb=_median([perf.max_mem_mb for perf in perfs]),
        memory_kind=perfs[0].max_mem_kind,
        gil_share=_median([record.host.gil_contention for record in records]),
        phases={
            name: value
            for name in names
            if (value := _median([record.phases.get(name) for record in records]))
        },
    )


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def bottleneck_of(records: Sequence[RunRecord]) -> str:
    """Return one line: the worst bottleneck that most launches of a level have. Without one, name
    the phase with the largest median time."""
    common = _common_bottleneck(records)
    if common is not None:
        return one_line(common)
    short = next(filter(None, map(too_short, records)), "")
    found = f"not judged: {short}" if short else "none found"
    phases = shown_phases(figures_of(records).phases) if records else {}
    if not phases:
        return found
    name = max(phases, key=lambda phase: phases[phase])
    return f"{found}; {name} takes {100 * phases[name] / sum(phases.values()):.0f}% of the step"


def _common_bottleneck(records: Sequence[RunRecord]) -> Bottleneck | None:
    """Return the worst, by median cost, of the bottlenecks that more than half of the launches
    have; None without any."""
    by_name: dict[str, list[Bottleneck]] = {}
    for record in records:
        for one in record.bottlenecks or ():
            by_name.setdefault(one.name, []).append(one)
    common = []
    for each in by_name.values():
        if 2 * len(each) > len(records):
            each.sort(key=lambda one: one.cost)
            common.append(each[(len(each) - 1) // 2])
    return min(common, key=lambda one: (one.severity != "bottleneck", -one.cost), default=None)
