"""The page of a ladder: each speed-up with its interval and guard."""

from __future__ import annotations

import pytest

from canary.ladder.report import report_of, result_page
from canary.report.charts.speedups import Speed, speed_up_charts
from tests.unit.ladder.test_ladder_view import ladder
from tests.unit.pages.making import Read, numbers


def test_a_ladder_shows_every_level_with_its_interval_and_guard() -> None:
    found = ladder()
    page = result_page(found)
    assert report_of(found).answer in Read(page).text
    rows = numbers(page, "speedups")["rows"]
    measured = [level for level in found.levels[1:] if level.cumulative is not None]
    assert rows[0] == ["baseline", 1.0, None, None, "reference"]
    for row, level in zip(rows[1:], measured, strict=False):
        assert level.cumulative is not None
        assert row[0] == level.level
        assert row[1:4] == pytest.approx(
            [level.cumulative.ratio, level.cumulative.low, level.cumulative.high]
        )
        assert (row[4] == "UNSAFE") is level.unsafe
    assert "UNSAFE" in {row[4] for row in rows}


def test_a_wide_interval_does_not_hide_the_others() -> None:
    switches = (
        "static cache, compiled decoding static",
        "static cache, compiled decoding compiled",
    )
    speeds = [Speed(name, 2.0, 0.01, 9000.0, "holds") for name in switches]
    (chart,) = speed_up_charts("Gain", "No sure gain.", speeds)
    drawn = [point for layer in chart.layers for point in layer.points if "high" in point]
    assert {point["high"] for point in drawn} == {6.0}
    assert len({point["name"] for point in drawn}) == 2
    assert [row[3] for row in chart.rows] == [9000.0, 9000.0]
    assert ">UNSAFE<" not in chart.svg()
