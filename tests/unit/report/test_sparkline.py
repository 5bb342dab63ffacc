"""Values in a few characters, as `canary history` shows a metric."""

from __future__ import annotations

from canary.report.history_view import sparkline, thinned


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
