"""Curves from strangers: extreme numbers give an answer, and no error."""

from __future__ import annotations

import itertools
import math
from typing import Any, get_args

from hypothesis import given, settings
from hypothesis import strategies as st

from canary.compare.metrics.judging import metric_gate_checks
from canary.config.metric_gates import Statistic
from tests.unit.comparing import record
from tests.unit.gating import gate, with_curve

LARGE = (1e308, -1e308, 1e155, 1e100, -1e100, 1e16)
SMALL = (1.0, -1.0, 0.5, 0.0, 1e-308, 5e-324)
NUMBERS = st.sampled_from([*LARGE, *SMALL, math.nan, math.inf])
CURVES = st.lists(NUMBERS, min_size=1, max_size=6)
NEEDED: dict[str, dict[str, Any]] = {"share_above": {"above": 1.0}, "at": {"step": 1}}
GATES = [
    *(
        gate("x", statistic=name, limit=limit, worse=worse, **NEEDED.get(name, {}))
        for name, limit, worse in itertools.product(
            get_args(Statistic), ("5%", "history", 1.0), ("higher", "lower", "both")
        )
    ),
    gate("x", limit=1.0, worse="higher", of_step=1),
]
RUNS = [record(number) for number in range(10)]


@settings(max_examples=25, deadline=None)
@given(st.lists(CURVES, min_size=1, max_size=2), st.lists(CURVES, max_size=6))
def test_every_curve_gets_an_answer(now: list[list[float]], before: list[list[float]]) -> None:
    current = [with_curve(RUNS[9 - n], values, "x") for n, values in enumerate(now)]
    baseline = [with_curve(RUNS[n], values, "x") for n, values in enumerate(before)]
    checks = metric_gate_checks(current, baseline, GATES, 0.005)
    assert len(checks) == len(GATES)
    broken = any(not abs(value) <= 1e100 for values in now for value in values)
    for check, one in zip(checks, GATES, strict=True):
        if broken and one.statistic != "at":
            assert check.status in ("fail", "inconclusive"), check
