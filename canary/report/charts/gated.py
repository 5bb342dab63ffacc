"""The curves that gates of `metrics:` judge, and those of their limits that are numbers."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import get_args

from canary.compare.metrics.curves import curve_in, own_name
from canary.config.metric_gates import Statistic
from canary.report.charts.sides import Series, ShownRun, ShownSides

IN_ITS_UNIT = ("mean", "median", "last", "max", "min", "area", "at", "steps")
"""Statistics whose limit can be drawn beside the values."""
_GATE = re.compile(rf"metrics\.(.+)\.({'|'.join(get_args(Statistic))})(\.\d+)?", re.DOTALL)
MOST_CHARTS = 20


def limits_by_metric(sides: ShownSides) -> dict[str, tuple[float, ...]]:
    """Return each gated metric, by the canary's name for it, with its limits that are numbers in
    the metric's unit."""
    limits: dict[str, list[float]] = defaultdict(list)
    for check in sides.found.checks if sides.found is not None else ():
        named = _GATE.fullmatch(check.name)
        if named is None:
            continue
        of_metric = limits[own_name(sides.newest.record, named[1])]
        # Of the limits in no unit, only a plain number has no interval.
        plain = check.scale == "" and check.interval is None and check.threshold is not None
        if plain and named[2] in IN_ITS_UNIT and check.threshold not in of_metric:
            assert check.threshold is not None
            of_metric.append(check.threshold)
    return {name: tuple(values) for name, values in limits.items()}


def gated_series(run: ShownRun, name: str) -> Series:
    """Return a gated metric by step; empty if the record has no curve of it."""
    curve = curve_in(run.record, name)
    return {} if curve is None else dict(zip(curve.steps, curve.values, strict=True))
