"""One stalled step alone does not decide about the speed; repeated stalls and a slower run do."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import pytest

from canary.compare.report import Comparison
from canary.compare.stats import compare_to_baseline
from canary.record.spikes import stall_of
from canary.record.types import RunRecord
from canary.report.render import render
from tests.unit.comparing import altered, pairs, record, scatter

STEPS = 200
NOISE = [0.1 * factor for factor in scatter(STEPS, 0.015)]


def run(number: int, *, factor: float = 1.0, stalls: dict[int, float] | None = None) -> RunRecord:
    """A run of 200 steps of 0.1 s; a stalled step takes so many times as long."""
    stalled = stalls or {}
    times = [factor * time * stalled.get(step, 1.0) for step, time in enumerate(NOISE, start=1)]
    return of_times(number, times)


def of_times(number: int, times: Sequence[float]) -> RunRecord:
    rows = [
        {"launch": 1, "step": step, "wall_s": time, "phases": {}}
        for step, time in enumerate(times, start=1)
    ]
    whole = record(number, statistics.median(times), mean_s=statistics.fmean(times))
    return altered(whole, "launches", 0, "stall", to=stall_of(rows))  # type: ignore[arg-type]


def history(stalls: dict[int, float] | None = None) -> list[RunRecord]:
    return [
        run(number, factor=factor, stalls=stalls) for number, factor in enumerate(scatter(20, 0.01))
    ]


def every(steps: int, factor: float) -> dict[int, float]:
    return dict.fromkeys(range(steps, STEPS + 1, steps), factor)


def compared(*current: RunRecord, before: Sequence[RunRecord] | None = None) -> Comparison:
    found = compare_to_baseline(current, before or history())
    for form in ("text", "markdown", "json"):
        assert render(found, form)
    return found


def test_one_stalled_step_is_a_warning_that_names_it() -> None:
    found = compared(run(100, stalls={140: 30.0}))
    mean = found.check("step_time_mean")
    assert mean.status == "warn"
    assert mean.delta_pct == pytest.approx(14.5, abs=0.5)
    assert "step 140" in mean.message
    assert "30 times the median" in mean.message
    assert "one stalled step alone does not decide" in mean.message
    assert mean.unjudged == "stalled"
    assert found.check("tokens_per_sec").status == "warn"
    assert found.check("tokens_per_sec").delta_pct == pytest.approx(-12.7, abs=0.5)
    assert found.verdict not in ("regression", "error")
    assert not any(check.failed for check in found.checks)


def test_repeated_stalls_fail() -> None:
    found = compared(run(100, stalls=every(20, 1 + 0.15 * 20)))
    assert found.check("step_time_median").status == "pass"
    assert found.check("step_time_mean").status == "fail"
    assert found.check("tokens_per_sec").status == "fail"


def test_two_stalls_of_one_size_fail() -> None:
    found = compared(run(100, stalls={60: 14.0, 160: 14.0}))
    assert found.check("step_time_mean").status == "fail"


def test_a_small_stall_by_chance_does_not_make_a_large_one_a_habit() -> None:
    found = compared(run(100, stalls={60: 2.0, 160: 30.0}))
    assert found.check("step_time_mean").status == "warn"


def test_a_slower_run_fails_with_a_stall_too() -> None:
    found = compared(run(100, factor=1.12, stalls={140: 30.0}))
    assert found.check("step_time_median").status == "fail"
    assert found.check("step_time_mean").status == "fail"


def test_a_stall_at_one_step_in_every_run_fails() -> None:
    found = compared(*(run(100 + place, stalls={140: 30.0}) for place in range(3)))
    assert found.check("step_time_mean").status == "fail"


def test_a_stall_that_the_baseline_has_at_that_step_is_no_accident() -> None:
    """A checkpoint in each run: in the current one it takes three times as long."""
    found = compared(run(100, stalls={140: 60.0}), before=history({140: 20.0}))
    assert found.check("step_time_mean").status == "fail"


def test_without_the_step_the_rest_must_be_decided() -> None:
    """The rest is 8% slower: it cannot be told from the limit, so it is no pass."""
    wide = [run(n, factor=factor) for n, factor in enumerate(scatter(20, 0.035))]
    found = compared(run(100, factor=1.08, stalls={140: 60.0}), before=wide)
    mean = found.check("step_time_mean")
    assert mean.status == "inconclusive"
    assert "step 140" in mean.message
    assert found.verdict == "inconclusive"


def test_a_stall_in_one_of_the_pairs_does_not_decide() -> None:
    current, baseline = pairs(8, sd=0.002, drift=0.0)
    stalled = [run(1000 + place) for place in range(7)] + [run(1007, stalls={140: 300.0})]
    plain = [run(place) for place in range(8)]
    found = compare_to_baseline(stalled, plain, paired=True)
    assert len(current) == len(baseline) == 8
    assert not found.check("step_time_mean").failed


def test_a_record_without_the_longest_step_is_judged_by_its_mean() -> None:
    bare = altered(run(100, stalls={140: 30.0}), "launches", 0, "stall", to=None)
    assert compared(bare).check("step_time_mean").status == "fail"


@pytest.mark.parametrize("others", [0.0, -1.0, "nan", "inf", 1e-300])
def test_a_stall_that_contradicts_the_mean_excuses_nothing(others: float | str) -> None:
    whole = run(100, stalls={140: 30.0})
    forged = altered(whole, "launches", 0, "stall", "others_mean_s", to=others)
    assert compared(forged).check("step_time_mean").status == "fail"
