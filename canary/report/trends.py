"""The newest runs of a history in a few characters, beside the figures that they have in common."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from itertools import pairwise

from canary.compare.timing.side_figures import side_of
from canary.record.jsonio import number
from canary.record.types import RunRecord
from canary.report.numbers import amount
from canary.report.view import SUMMARY_ROWS, scaled

BLOCKS = "▁▂▃▄▅▆▇█"
LEAST_RANGE = 0.1
"""Share of the median that the blocks span at least: noise must not look like mountains."""

Trends = tuple[tuple[str, tuple[float, ...]], ...]
"""Values of the newest runs, oldest first, by the summary's label."""

SHOWN = 20
"""Newest runs, with the current one."""
LEAST = 3
"""Fewer runs show no trend."""
FOLLOWED = ("step_time_median_s", "tokens_per_sec", "max_mem_mb", "final_loss")


def trends_of(runs: Sequence[RunRecord]) -> Trends:
    """Return the trends of stored runs and the current one, given oldest first."""
    summaries = [side_of([run]).summary for run in runs[-SHOWN:]]
    found = []
    for label, key, _, factor in SUMMARY_ROWS:
        values = [number(scaled(summary.get(key), factor)) for summary in summaries]
        known = tuple(float(v) for v in values if v is not None and math.isfinite(v))
        if key in FOLLOWED and len(known) >= LEAST:
            found.append((label, known))
    return tuple(found)


def trend_texts(trends: Trends) -> dict[str, str]:
    """Return blocks and range by label, such as `▃▃▄█ 98.2 to 150 ms`."""
    units = {label: unit for label, _, unit, _ in SUMMARY_ROWS}
    return {
        label: f"{sparkline(values)} {_range(values, units[label])}" for label, values in trends
    }


def _range(values: Sequence[float], unit: str) -> str:
    low, high = amount(min(values)), amount(max(values), unit)
    return f"{low} to {high}" if min(values) != max(values) else high


def sparkline(values: Sequence[float]) -> str:
    """Return one block per value."""
    middle, low, high = statistics.median(values), min(values), max(values)
    span = max(high - low, LEAST_RANGE * abs(middle))
    if span == 0:
        return BLOCKS[len(BLOCKS) // 2] * len(values)
    bottom = (low + high - span) / 2
    places = (int(len(BLOCKS) * (value - bottom) / span) for value in values)
    return "".join(BLOCKS[min(place, len(BLOCKS) - 1)] for place in places)


NEWEST = 3
"""Values that are never thinned: the newest change waits there."""


def thinned(values: Sequence[float], most: int) -> list[float]:
    """Return at most `most` values: the newest, and before them medians of neighbours, of which no
    spike is left."""
    if len(values) <= most:
        return list(values)
    older, left = values[:-NEWEST], most - NEWEST
    ends = [round(number * len(older) / left) for number in range(left + 1)]
    medians = [statistics.median(older[first:end]) for first, end in pairwise(ends)]
    return [*medians, *values[-NEWEST:]]
