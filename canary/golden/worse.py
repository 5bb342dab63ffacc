"""Whether a metric got worse beyond its limit, so that new golden values would hide it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from canary.compare.thresholds import Thresholds
from canary.golden.model import TIMES, Series
from canary.golden.tolerance import Tolerance
from canary.record.end_loss import END_LOSS, end_value
from canary.record.metric_names import QUANTITIES
from canary.report.numbers import significant

Direction = Literal["higher", "lower"]

OBVIOUS: dict[str, tuple[Direction, str]] = {
    "loss": ("higher", "max_final_loss_increase_pct"),
    "eval_loss": ("higher", "max_final_loss_increase_pct"),
    "value_loss": ("higher", "max_final_loss_increase_pct"),
    "mismatch": ("higher", "max_final_loss_increase_pct"),
    "grad_norm": ("higher", "max_grad_norm_ratio"),
    "step_time_s": ("higher", "max_step_time_increase_pct"),
    "tokens_per_sec": ("lower", "max_tps_drop_pct"),
    "tokens_per_sec_per_gpu": ("lower", "max_tps_drop_pct"),
    "max_memory_bytes": ("higher", "max_mem_increase_pct"),
    "memory_bytes": ("higher", "max_mem_increase_pct"),
}
"""Metric -> (the worse direction, the key of its limit); the others are in `QUANTITIES`."""
SPREAD = "spread"
WORDS = {"mean": "mean of all steps", "largest": "largest value"}
"""Statistics whose key in a file's history is shorter than their name in a sentence."""
LARGEST = ("grad_norm", "max_memory_bytes", "memory_bytes")
"""Metrics of which the largest value counts."""


@dataclass(frozen=True)
class Judged:
    """One metric's statistic before and after."""

    statistic: str
    before: float
    after: float
    worse_by: float
    """In the limit's scale; negative: it got better."""
    limit: float
    scale: str
    """`pct`, `ratio` or `std`."""

    @property
    def beyond(self) -> bool:
        """Whether it got worse beyond its limit."""
        return not self.worse_by <= self.limit

    @property
    def used(self) -> float:
        """The share of its limit that it used; infinite if it cannot be said."""
        if math.isnan(self.worse_by):
            return math.inf
        if self.limit == 0:
            return math.copysign(math.inf, self.worse_by) if self.worse_by else 0.0
        return self.worse_by / self.limit

    def sentence(self) -> str:
        """Return the change in words."""
        by, word = abs(self.worse_by), "worse" if self.worse_by > 0 else "better"
        size = {
            "pct": f"{by:.3g}% {word}, limit {self.limit:g}%",
            "ratio": f"{by:.3g} times, limit {self.limit:g} times",
            "std": f"{by:.3g} standard deviations {word}, limit {self.limit:g}",
        }[self.scale]
        return f"{self.statistic} {significant(self.before)} -> {significant(self.after)}: {size}"


def direction_of(name: str) -> tuple[Direction, str] | None:
    """Return a metric's worse direction and the key of its limit; None if nobody knows."""
    if name in OBVIOUS:
        return OBVIOUS[name]
    for quantity in QUANTITIES.values():
        if quantity.worse and quantity.limit and name in (quantity.name, *quantity.names):
            return quantity.worse, quantity.limit
    return None


def judged(
    name: str,
    was: Mapping[str, float],
    now: Mapping[str, float],
    thresholds: Thresholds,
    given: Tolerance | None = None,
    since: str = "",
) -> list[Judged]:
    """Return how each statistic of a metric changed; empty if its direction is unknown.

    `was` and `now`: as `statistics_of`. `given`: the user's limit in percent. `since`: words for
    the time of `was`.
    """
    known = direction_of(name)
    if known is None:
        return []
    direction, threshold = known
    limit, scale = float(getattr(thresholds, threshold)), threshold.rpartition("_")[2]
    if given is not None:
        limit, scale = given.size, "pct"
    return [
        Judged(
            f"{WORDS.get(key, key)}{since}",
            was[key],
            now[key],
            _worse_by(was[key], now[key], direction, scale, was.get(SPREAD, 0.0)),
            limit,
            scale,
        )
        for key in was
        if key != SPREAD and key in now
    ]


def statistics_of(name: str, series: Series) -> dict[str, float]:
    """Return what a metric is judged by, and the standard deviation over its steps."""
    values = series.values
    if name in TIMES:
        return {"median": statistics.median(values)}
    if name in LARGEST:
        return {"largest": max(values)}
    found = {"mean": statistics.fmean(values), SPREAD: statistics.pstdev(values)}
    if name in OBVIOUS and len(values) > 1:
        end = end_value(values)
        found[END_LOSS] = math.nan if end is None else end
    return found


def _worse_by(was: float, now: float, direction: Direction, scale: str, spread: float) -> float:
    rise = now - was if direction == "higher" else was - now
    if rise == 0.0:
        return 1.0 if scale == "ratio" else 0.0
    if scale == "ratio":
        return now / was if was > 0 else math.copysign(math.inf, rise)
    size = abs(was) / 100 if scale == "pct" else spread
    return rise / size if size > 0 else math.copysign(math.inf, rise)
