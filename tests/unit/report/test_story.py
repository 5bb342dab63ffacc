"""The figures of `canary explain`: a timing that is too noisy to tell is marked."""

from __future__ import annotations

import pytest

from canary.compare.report import Check, Comparison
from canary.report.story import story_of


@pytest.mark.parametrize(("low", "noisy"), [(-1.0, True), (1.0, False)])
def test_timings_that_are_too_noisy_are_marked_and_figures_are_not(low: float, noisy: bool) -> None:
    clock = Check(
        "step_time_median", "performance", "timing", "inconclusive", "so", interval=(low, 20.0)
    )
    found = Comparison("changed", "so", checks=(clock,))
    sides = [{"step_time_mean_s": 0.1 * n, "max_mem_mb": 10.0 * n} for n in (1, 2)]
    for side, summary in zip((found.baseline, found.current), sides, strict=True):
        object.__setattr__(side, "summary", summary)
    time, memory = story_of(found, [], []).metrics
    assert ("too noisy to tell" in time.change) is noisy
    assert memory.change == "+100%"
