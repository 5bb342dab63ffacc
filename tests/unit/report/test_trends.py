"""The newest runs in a few characters, beside the figures of the comment's summary."""

from __future__ import annotations

from canary.compare.stats import compare_to_baseline
from canary.github.comment import LIMIT
from canary.github.section import section
from canary.github.status import Source
from canary.report.trends import SHOWN, sparkline, thinned, trends_of
from tests.unit.comparing import history, record, records


def test_the_largest_value_is_the_highest_block() -> None:
    assert sparkline([1.0, 2.0, 3.0, 8.0]) == "▁▂▃█"
    assert sparkline([8.0, 1.0]) == "█▁"


def test_noise_does_not_look_like_mountains() -> None:
    assert sparkline([100.0, 100.5, 99.5, 100.2]) == "▄▅▄▅"
    assert sparkline([0.0, 0.0, 0.0]) == "▅▅▅"
    assert sparkline([-5.0, -5.0]) == "▅▅"


def test_long_rows_are_thinned_to_medians_and_the_newest() -> None:
    assert thinned([1.0, 1.0, 9.0, 2.0, 2.0, 2.0, 3.0, 4.0, 5.0], 5) == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert thinned([1.0, 2.0], 14) == [1.0, 2.0]
    assert len(thinned([1.0] * 1001, 14)) == 14


def test_the_trends_are_those_of_the_newest_runs() -> None:
    runs = [*history(count=30), record(40, 0.15)]
    trends = dict(trends_of(runs))
    assert list(trends) == [
        "step time, median",
        "tokens per second",
        "peak memory",
        "final loss",
    ]
    times = trends["step time, median"]
    assert len(times) == SHOWN
    assert times[-1] == 150.0
    assert trends_of(runs[-2:]) == ()


def test_the_comment_shows_them_beside_the_figures() -> None:
    current, stored = records([0.15], first=50), history()
    found = compare_to_baseline(current, stored, history=True)
    text = section(found, Source("a" * 40), LIMIT, trends=trends_of([*stored, *current]))
    (row,) = (line for line in text.splitlines() if line.startswith("| step time, median |"))
    assert row.endswith("█ 98.05 to 150 ms |")
    without = section(found, Source("a" * 40), LIMIT)
    assert "newest runs" not in without
