"""From the launches of the levels to their figures and to ratios with intervals. Pure.

A launch is one sample. Levels alternate within a round, and a ratio is that of two launches of one
round: what the machine does over the minutes leaves it.
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
"""Error of each end of an interval: 95% between them."""


@dataclass(frozen=True)
class SpeedUp:
    """A ratio of samples a second, with a 95% interval where there was more than one round."""

    ratio: float
    low: float | None
    high: float | None
    rounds: int

    @property
    def open(self) -> bool:
        """Whether the interval includes 1: neither a gain nor a loss is sure."""
        return self.low is not None and self.high is not None and self.low <= 1 <= self.high

    @property
    def sure(self) -> bool:
        """Whether the interval lies above 1."""
        return self.low is not None and self.low > 1


def speed_up(faster: Sequence[float], slower: Sequence[float]) -> SpeedUp:
    """The ratio of two levels' speeds, the i-th of each from one round; all above 0."""
    logs = [math.log(one / other) for one, other in zip(faster, slower, strict=True)]
    spread = spread_of(logs, "rounds")
    if spread is None:
        return SpeedUp(math.exp(logs[0]), None, None, 1)
    found = paired_estimate(logs, spread)
    low, high = found.lower(ALPHA), found.upper(1 - ALPHA)
    return SpeedUp(math.exp(found.change), math.exp(low), math.exp(high), len(logs))


def share_of_gain(part: float, whole: float) -> float | None:
    """What share of a gain a smaller one is, in logarithms, as factors multiply; None where the
    whole is no gain."""
    return math.log(part) / math.log(whole) if whole > 1 else None


@dataclass(frozen=True)
class Figures:
    """What the launches of one level told, each the median of its launches; None: not measured."""

    samples_per_s: float
    tokens_per_s: float | None = None
    completion_tokens_per_s: float | None = None
    step_s: float | None = None
    gpu_pct: float | None = None
    cpu_pct: float | None = None
    """Of one core, over the process tree."""
    memory_mb: float | None = None
    memory_kind: str | None = None
    gil_share: float | None = None
    """Of the computing time, at most so much was waiting for Python's lock."""
    phases: Mapping[str, float] = field(default_factory=dict)
    """Seconds a step."""


def figures_of(records: Sequence[RunRecord]) -> Figures:
    """The figures of one level's completed launches."""
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
    told = [value for value in values if value is not None]
    return statistics.median(told) if told else None


def bottleneck_of(records: Sequence[RunRecord]) -> str:
    """What held the launches of one level back, in a line: the worst that most of them name, or
    the part of a step that took most, by their medians and under the names of the live line."""
    named = _named_by_most(records)
    if named is not None:
        return one_line(named)
    short = next(filter(None, map(too_short, records)), "")
    found = f"not judged: {short}" if short else "none was named"
    phases = shown_phases(figures_of(records).phases) if records else {}
    if not phases:
        return found
    name = max(phases, key=lambda phase: phases[phase])
    return f"{found}; {name} takes {100 * phases[name] / sum(phases.values()):.0f}% of a step"


def _named_by_most(records: Sequence[RunRecord]) -> Bottleneck | None:
    """Of the bottlenecks that more than half of the launches have, the worst by its median cost;
    None where there is none."""
    told: dict[str, list[Bottleneck]] = {}
    for record in records:
        for one in record.bottlenecks or ():
            told.setdefault(one.name, []).append(one)
    usual = []
    for each in told.values():
        if 2 * len(each) > len(records):
            each.sort(key=lambda one: one.cost)
            usual.append(each[(len(each) - 1) // 2])
    return min(usual, key=lambda one: (one.severity != "bottleneck", -one.cost), default=None)
