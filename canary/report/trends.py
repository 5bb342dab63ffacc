"""The newest runs of a history in a few characters, beside the figures that they have in common."""

from __future__ import annotations

import math
from collections.abc import Sequence

from canary.compare.timing.side_figures import side_of
from canary.record.jsonio import number
from canary.record.types import RunRecord
from canary.report.numbers import amount
from canary.report.sparkline import sparkline
from canary.report.view import SUMMARY_ROWS, scaled

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
