"""What must hold of any comparison, over generated step times."""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from canary.compare.report import Comparison
from canary.compare.stats import compare_to_baseline
from canary.compare.thresholds import DEFAULT_THRESHOLDS, Thresholds
from canary.compare.timing.noise import NoiseModel
from canary.record.types import RunRecord
from tests.unit.comparing import noise_model, record, statuses

TIMED = ("step_time_median", "step_time_mean", "tokens_per_sec")
WORSE = {"pass": 0, "inconclusive": 1, "warn": 1, "fail": 2}

common = settings(max_examples=12)
Launches = list[tuple[float, float]]
"""Median step time and how many times the mean is above it, a launch."""


@st.composite
def sides(draw: st.DrawFn, *, paired: bool = False) -> tuple[Launches, Launches]:
    """(current, baseline): a noise of one size, and a change that may be none."""
    spread, effect = draw(st.sampled_from([0.001, 0.01, 0.1])), draw(st.floats(0.8, 1.5))
    noise = st.floats(-1.0, 1.0).map(lambda z: math.exp(spread * z))
    launch = st.tuples(noise.map(lambda f: 0.1 * f), noise.map(lambda f: 1.05 * f))
    count = draw(st.integers(3, 8))
    baseline = draw(st.lists(launch, min_size=1 if not paired else count, max_size=count))
    size = len(baseline) if paired else draw(st.integers(1, 4))
    current = draw(st.lists(launch, min_size=size, max_size=size))
    return [(effect * median, stall) for median, stall in current], baseline


sensitivities = st.sampled_from(
    [DEFAULT_THRESHOLDS, DEFAULT_THRESHOLDS.model_copy(update={"sensitivity": "adaptive"})]
)
models = st.sampled_from([None, noise_model(0.01), noise_model(0.1, pair_sd=0.02)])


def made(launches: Launches, first: int, factor: float = 1.0) -> list[RunRecord]:
    return [
        record(first + place, factor * median, mean_s=factor * median * stall)
        for place, (median, stall) in enumerate(launches)
    ]


def compared(
    current: Sequence[RunRecord],
    baseline: Sequence[RunRecord],
    thresholds: Thresholds,
    noise: NoiseModel | None,
    paired: bool = False,
) -> Comparison:
    return compare_to_baseline(current, baseline, thresholds, noise=noise, paired=paired)


@pytest.mark.slow
@common
@given(sides(paired=True), st.floats(0.01, 1000.0), sensitivities, models)
def test_a_clock_of_another_speed_changes_nothing(
    launches: tuple[Launches, Launches],
    scale: float,
    thresholds: Thresholds,
    noise: NoiseModel | None,
) -> None:
    now, before = launches
    plain, scaled = (
        compared(made(now, 100, factor), made(before, 0, factor), thresholds, noise, paired=True)
        for factor in (1.0, scale)
    )
    assert statuses(plain) == statuses(scaled)
    assert plain.verdict == scaled.verdict


@common
@given(sides(), st.floats(1.0, 3.0), sensitivities, models)
def test_a_slower_candidate_never_looks_better(
    launches: tuple[Launches, Launches],
    slower: float,
    thresholds: Thresholds,
    noise: NoiseModel | None,
) -> None:
    now, before = launches
    baseline = made(before, 0)
    plain = compared(made(now, 100), baseline, thresholds, noise)
    worse = compared(made(now, 100, slower), baseline, thresholds, noise)
    for name in TIMED:
        was, is_now = plain.check(name), worse.check(name)
        assert not (was.status == "fail" and is_now.status != "fail"), name
        assert not (is_now.status == "pass" and WORSE[was.status] > 0), name
    if plain.verdict == "regression":
        assert worse.verdict == "regression"
    if worse.verdict == "pass":
        assert plain.verdict == "pass"


@common
@given(sides(), st.randoms(use_true_random=False), sensitivities, models)
def test_the_order_in_which_runs_are_given_does_not_matter(
    launches: tuple[Launches, Launches],
    rng: Random,
    thresholds: Thresholds,
    noise: NoiseModel | None,
) -> None:
    now, before = launches
    current, baseline = made(now, 100), made(before, 0)
    shuffled = [list(current), list(baseline)]
    for runs in shuffled:
        rng.shuffle(runs)
    assert compared(current, baseline, thresholds, noise) == compared(
        shuffled[0], shuffled[1], thresholds, noise
    )


@common
@given(sides(), sensitivities, models)
def test_only_decided_comparisons_pass(
    launches: tuple[Launches, Launches], thresholds: Thresholds, noise: NoiseModel | None
) -> None:
    now, before = launches
    found = compared(made(now, 100), made(before, 0), thresholds, noise)
    event(found.verdict)
    judged = {check.status for check in found.checks}
    assert (found.verdict == "pass") == (judged <= {"pass", "warn", "skip"})
    assert found.passed == (judged <= {"pass", "warn", "skip", "inconclusive"})
    assert (found.verdict == "regression") == ("fail" in judged)
    for check in found.failed_checks:
        assert check.delta is not None
        assert check.interval is not None
        assert check.interval[0] > 0 or check.name == "tokens_per_sec"
