"""What is said of the speed where something else got worse: no more than the clock decided."""

from __future__ import annotations

import pytest

from canary.compare.report import Check, CheckStatus, Comparison
from canary.report.story import patterns, story_of

LEARNED = Check("first_loss", "correctness", "exact", "changed", "other")


def with_clock(*others: Check, status: CheckStatus, low: float, high: float) -> Comparison:
    clock = Check(
        "step_time_median",
        "performance",
        "timing",
        status,
        "so",
        delta_pct=1.0,
        interval=(low, high),
    )
    return Comparison("changed", "so", checks=(clock, *others))


def said(found: Comparison) -> str:
    (sentence,) = patterns(found)
    return sentence


def test_the_same_speed_is_claimed_only_where_the_clock_decided_it() -> None:
    assert "as fast as before" in said(with_clock(LEARNED, status="pass", low=-1.0, high=2.0))
    assert "beyond the limit" in said(with_clock(LEARNED, status="pass", low=-30.0, high=40.0))
    assert "faster" in said(with_clock(LEARNED, status="pass", low=-9.0, high=-2.0))
    undecided = said(with_clock(LEARNED, status="inconclusive", low=-40.0, high=78.1))
    assert "speed is too noisy to tell" in undecided


@pytest.mark.parametrize(("low", "noisy"), [(-1.0, True), (1.0, False)])
def test_timings_that_are_too_noisy_are_marked_and_figures_are_not(low: float, noisy: bool) -> None:
    found = with_clock(LEARNED, status="inconclusive", low=low, high=20.0)
    sides = [{"step_time_mean_s": 0.1 * n, "max_mem_mb": 10.0 * n} for n in (1, 2)]
    for side, summary in zip((found.baseline, found.current), sides, strict=True):
        object.__setattr__(side, "summary", summary)
    time, memory = story_of(found, [], []).metrics
    assert ("too noisy to tell" in time.change) is noisy
    assert memory.change == "+100%"
