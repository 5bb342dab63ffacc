"""Each gated metric has a chart, with its limit as a line where that is a number."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from canary.compare.stats import compare_to_baseline
from canary.config.metric_gates import MetricGate
from canary.report.charts.curves import learning_charts
from canary.report.charts.sides import ShownRun, ShownSides
from tests.unit.comparing import record
from tests.unit.gating import gate, imported, with_curve
from tests.unit.pages.making import numbers, page_of_sides, rows

HOSTILE = "a<script>/b.c"


def sides(name: str, gates: Sequence[MetricGate], *, with_rows: bool = False) -> ShownSides:
    now = imported(with_curve(record(100), [2.0] * 20, name))
    before = [imported(with_curve(record(n), [1.0 + n / 100] * 20, name)) for n in range(4)]
    found = compare_to_baseline(now, before, metrics=gates)
    shown = rows(20) if with_rows else ()
    return ShownSides((ShownRun(now, shown),), tuple(map(ShownRun, before)), found)


def test_a_gated_metric_has_a_chart_of_both_sides_with_its_limit() -> None:
    made = sides(HOSTILE, [gate(HOSTILE, worse="higher", limit=1.5)])
    (chart,) = [each for each in learning_charts(made) if each.title == HOSTILE]
    assert "Limit: 1.5" in chart.finding
    assert list(chart.rows[0][:3]) == pytest.approx([1, 2.0, 1.015])
    drawn = json.dumps(chart.spec(validate=True))
    assert '{"limit": 1.5}' in drawn
    assert chart.svg().startswith("<svg")
    page = page_of_sides(made)
    assert "<script>/b.c" not in page
    assert len(numbers(page, chart.name)["rows"]) == 20


def test_a_limit_that_is_no_value_of_the_metric_is_no_line() -> None:
    others = [
        gate("m", worse="higher", limit="5%"),
        gate("m", worse="higher", statistic="median", limit="history"),
        gate("m", worse="higher", statistic="count", limit=3.0),
        gate("m", worse="higher", statistic="last", of_step=1, limit=1.2),
    ]
    (chart,) = [each for each in learning_charts(sides("m", others)) if each.title == "m"]
    assert "Limit" not in chart.finding
    assert '"limit"' not in json.dumps(chart.spec())


def test_a_metric_that_has_a_chart_gets_no_second_one() -> None:
    """Stored runs have no steps, but the curves of what is gated."""
    made = sides("reward", [gate("reward", limit=0.5)], with_rows=True)
    titles = [chart.title for chart in learning_charts(made)]
    assert titles.count("Reward") == 1
    assert "reward" not in titles
    (chart,) = [each for each in learning_charts(made) if each.name == "reward"]
    assert "Limit: 0.5" in chart.finding
    assert list(chart.rows[0][:3]) == pytest.approx([1, 2.0, 1.015])
