"""`canary history` names the command that would find the commit of a change."""

from __future__ import annotations

from dataclasses import replace

import pytest

from canary.report.history_view import history_text
from canary.trends.model import ChangePoint, HistoryTrends, Series, StoredPoint

CHANGE = ChangePoint(8, 6.1, (4.0, 8.2), True, "confirmed", 4, (7, 9), ())


def series(*changes: ChangePoint, commits: str = "0123456789ab") -> Series:
    points = tuple(
        StoredPoint(f"run-{n}", sha * 40, f"2026-01-{n + 1:02}", 100.0 + n % 2, 1, "pass", False)
        for n, sha in enumerate(commits)
    )
    return Series("step_time_median", "step time", "ms", True, points, (), changes)


def drawer(one: Series, config: str = "canary.yaml") -> HistoryTrends:
    return HistoryTrends("sft", "cpu", (one,), config_file=config)


def text(found: HistoryTrends, form: str = "text", commits: int | None = 5) -> str:
    return history_text([found], form, 40 if form == "text" else None, "", lambda *_: commits)


def test_the_command_spans_the_runs_where_it_may_have_begun_and_stays_on_one_line() -> None:
    command = "canary bisect canary.yaml --good 666666666 --bad 999999999 --check step_time_median"
    said = text(drawer(series(CHANGE)))
    assert f"\n  {command}\n" in said
    assert "Find the commit:\n" in said
    assert f"`{command}`\n" in text(drawer(series(CHANGE)), "markdown")


@pytest.mark.parametrize(
    "change",
    [
        replace(CHANGE, worse=False),
        replace(CHANGE, standing="returned"),
        replace(CHANGE, standing="accepted"),
        replace(CHANGE, within=(0, 9)),
    ],
)
def test_only_a_confirmed_change_for_the_worse_is_searched(change: ChangePoint) -> None:
    assert "canary bisect" not in text(drawer(series(change)))


def test_one_commit_is_not_searched_and_none_neither() -> None:
    assert "canary bisect" not in text(drawer(series(CHANGE)), commits=1)
    assert "canary bisect" in text(drawer(series(CHANGE)), commits=None)
    assert "canary bisect" not in text(drawer(series(CHANGE, commits="a" * 12)))
    assert "canary bisect" not in text(drawer(series(CHANGE, commits="x" * 12)))


def test_an_unknown_or_hostile_config_is_a_placeholder() -> None:
    for config in ("", "$(touch pwned)", "a\nb"):
        assert "canary bisect CONFIG --good" in text(drawer(series(CHANGE), config))
