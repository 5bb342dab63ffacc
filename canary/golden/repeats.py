"""How many repeats a metric needs before its values can become golden.

An exact metric needs two equal repeats. A noisy one needs as many as its spread demands. The golden
value is the mean of n repeats, and the next healthy run must stay within the tolerance. So half
the prediction interval of a normal sample, t(n-1) * s * sqrt(1 + 1/n), must fit into it. The step
with the largest spread decides (Hahn and Meeker, Statistical Intervals, 1991, chapter 4).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from canary.compare.timing.student import t_quantile
from canary.golden.check import compare_metric
from canary.golden.model import GoldenMetric, Series

LEAST = 2
MOST = 200
LEVEL = 0.99
"""Share of healthy next runs within the tolerance at the noisiest step."""


@dataclass(frozen=True)
class Agreement:
    """Whether repeats agree, and the series that they make."""

    count: int
    needed: int | None
    """Repeats that the spread demands; None: no number of them would do."""
    series: Series = field(default_factory=Series)
    problem: str = ""
    """Why no golden value can be made; empty: the repeats agree."""


def agreement(golden: GoldenMetric, repeats: Sequence[Series]) -> Agreement:
    """Judge the repeats of one metric against the tolerance of a golden file."""
    count = len(repeats)
    for number, series in enumerate(repeats, 1):
        if bad := series.not_finite():
            return Agreement(count, None, problem=f"it is {bad[1]} at step {bad[0]}")
        if series.steps != repeats[0].steps:
            words = f"repeat {number} has other steps than repeat 1"
            return Agreement(count, None, problem=words)
    if not repeats or not repeats[0].steps:
        return Agreement(count, None, problem="the runs have no value of it")
    if all(series.values == repeats[0].values for series in repeats):
        return _enough(count, LEAST, repeats[0], "")
    if golden.tolerance.kind == "exact":
        return Agreement(count, None, problem=_unequal(golden, repeats))
    ratio = _spread(golden, repeats)
    needed = needed_repeats(ratio)
    return _enough(count, needed, _central(golden, repeats), _too_wide(golden, ratio))


def needed_repeats(ratio: float) -> int | None:
    """Return the least number of repeats for a standard deviation of `ratio` tolerances."""
    return next((n for n in range(LEAST, MOST + 1) if factor(n) * ratio <= 1.0), None)


def factor(count: int) -> float:
    """Return half the prediction interval, in standard deviations of the sample."""
    return t_quantile(0.5 + LEVEL / 2, count - 1) * math.sqrt(1 + 1 / count)


def _enough(count: int, needed: int | None, series: Series, too_wide: str) -> Agreement:
    if needed is None:
        return Agreement(count, None, problem=too_wide)
    if count >= needed:
        return Agreement(count, needed, series)
    more = needed - count
    times = "once more" if more == 1 else f"{more} more times"
    noise = ", because they spread" if needed > LEAST else ""
    there = "is 1 run" if count == 1 else f"are {count} runs"
    words = f"there {there}, {needed} that agree are needed{noise}: train {times} and name all runs"
    return Agreement(count, needed, problem=words)


def _unequal(golden: GoldenMetric, repeats: Sequence[Series]) -> str:
    first = GoldenMetric(repeats[0], golden.tolerance)
    for number, series in enumerate(repeats[1:], 2):
        found = compare_metric("", "", first, series)
        if found.first is not None:
            return (
                f"repeats 1 and {number} differ, first at step {found.first.step} by "
                f"{found.apart(found.first)}, but its tolerance is exact: seed the training, or "
                "write the file with a tolerance"
            )
    return "the repeats differ"


def _spread(golden: GoldenMetric, repeats: Sequence[Series]) -> float:
    """Return the largest standard deviation in tolerances, of any step or of the mean."""
    tolerance = golden.tolerance
    if golden.statistic == "median":
        columns = [[series.median(golden.window) for series in repeats]]
    else:
        columns = [list(values) for values in zip(*(s.values for s in repeats), strict=True)]
    found = [_ratio(values, tolerance.width(statistics.fmean(values))) for values in columns]
    if tolerance.mean is not None:
        found.append(_ratio([statistics.fmean(s.values) for s in repeats], tolerance.mean))
    return max(found)


def _ratio(values: Sequence[float], width: float) -> float:
    spread = statistics.stdev(values)
    if spread == 0.0:
        return 0.0
    return spread / width if width > 0 else math.inf


def _too_wide(golden: GoldenMetric, ratio: float) -> str:
    words = f"the repeats spread too far for the tolerance {golden.tolerance}"
    if not math.isfinite(ratio):
        return f"{words}: it allows nothing at a value of 0"
    return f"{words}: one {factor(5) * ratio:.2g} times as wide would need 5 repeats"


def _central(golden: GoldenMetric, repeats: Sequence[Series]) -> Series:
    """Return the mean of the repeats. Of times, the repeat with the most central median."""
    if golden.statistic == "median":
        middle = statistics.fmean(series.median(golden.window) for series in repeats)
        return min(repeats, key=lambda series: abs(series.median(golden.window) - middle))
    means = (statistics.fmean(v) for v in zip(*(s.values for s in repeats), strict=True))
    return Series(repeats[0].steps, tuple(means))
