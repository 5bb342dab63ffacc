"""What differs between a run and a golden file is told per metric: step, distance, count."""

from __future__ import annotations

from pathlib import Path

import pytest

from canary.errors import UsageError
from canary.golden.check import check, compare_metric
from canary.golden.model import Golden, GoldenMetric, Series
from canary.golden.tolerance import EXACT, Tolerance, parse_tolerance
from tests.unit.golden.golden_runs import LOSSES, NORMS, run, shifted

STEPS = (1, 2, 3, 4, 5)
FILE = Path("golden.json")
ULP = 2.0**-24
"""Of float32 between 0.5 and 1."""


def metric(values: tuple[float, ...] = LOSSES, tolerance: str = "exact") -> GoldenMetric:
    return GoldenMetric(Series(STEPS[: len(values)], values), parse_tolerance(tolerance))


def series(*values: float, first: int = 1) -> Series:
    return Series(tuple(range(first, first + len(values))), values)


def test_equal_values_are_equal() -> None:
    found = compare_metric("loss", "loss", metric(), series(*LOSSES))
    assert found.equal
    assert found.sentence() == "equal at 5 steps (exact)"


def test_a_difference_names_step_values_and_distance() -> None:
    found = compare_metric("loss", "loss", metric(), series(*shifted(LOSSES, 2 * ULP)))
    assert not found.equal
    assert (found.differing, found.first and found.first.step) == (1, 3)
    assert "differs at 1 of 5 steps (exact), first at step 3" in found.sentence()
    assert "golden 0.953125, run 0.9531251192092896, 2 ulp apart" in found.sentence()


def test_the_largest_distance_is_told_beside_the_first() -> None:
    values = shifted(shifted(LOSSES, ULP), 8 * ULP, at=4)
    found = compare_metric("loss", "loss", metric(), series(*values))
    assert "first at step 3" in found.sentence()
    assert "largest at step 5: 8 ulp apart" in found.sentence()


def test_a_distance_within_the_tolerance_is_equal() -> None:
    values = series(*shifted(LOSSES, 2 * ULP))
    assert compare_metric("loss", "loss", metric(tolerance="2ulp"), values).equal
    assert not compare_metric("loss", "loss", metric(tolerance="1ulp"), values).equal


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_value_that_is_not_finite_differs(value: float) -> None:
    values = series(*LOSSES[:3], value, LOSSES[4])
    found = compare_metric("loss", "loss", metric(tolerance="50%"), values)
    assert "first at step 4" in found.sentence()
    assert "not finite" in found.sentence()


def test_missing_and_extra_steps_differ() -> None:
    short = compare_metric("loss", "loss", metric(), series(*LOSSES[:3]))
    long = compare_metric("loss", "loss", metric(LOSSES[:3]), series(*LOSSES))
    assert (short.equal, long.equal) == (False, False)
    assert short.sentence() == "the run lacks steps 4-5"
    assert long.sentence() == "the golden file has no value at steps 4-5"


def test_a_metric_that_the_run_lacks_differs() -> None:
    found = compare_metric("loss", "loss", metric(), Series())
    assert not found.equal
    assert found.sentence() == "the run has no value of it"


def test_a_drift_within_the_limit_of_each_step_differs() -> None:
    values = series(*(value + 1e-4 for value in LOSSES))
    assert compare_metric("loss", "loss", metric(tolerance="1e-3"), values).equal
    found = compare_metric("loss", "loss", metric(tolerance="1e-3,mean=1e-5"), values)
    assert found.sentence() == "the mean difference is 0.0001, limit 1e-05"


def test_times_are_compared_by_their_median() -> None:
    golden = GoldenMetric(series(9.0, 1.0, 1.1, 0.9), Tolerance("percent", 5.0), "median")
    near = compare_metric("step_time_s", "step_time_s", golden, series(3.0, 1.02, 1.08, 0.8))
    far = compare_metric("step_time_s", "step_time_s", golden, series(9.0, 2.0, 2.2, 1.8))
    assert near.equal
    assert "the median differs" in far.sentence()


def test_every_launch_of_a_run_must_give_the_values(tmp_path: Path) -> None:
    second = {"loss": shifted(LOSSES, ULP), "grad_norm": NORMS}
    found = check(run(tmp_path, launches=[second]), golden(), FILE)
    assert not found.equal
    assert found.metrics[0].sentence().startswith("launch 2: differs at 1 of 5 steps")


def golden(**tolerances: str) -> Golden:
    values = {"loss": LOSSES, "grad_norm": NORMS}
    return Golden(
        "canary",
        {name: metric(one, tolerances.get(name, "exact")) for name, one in values.items()},
    )


def test_the_answer_counts_metrics_and_has_an_exit_code(tmp_path: Path) -> None:
    same = check(run(tmp_path), golden(), FILE)
    moved = run(tmp_path, "run-2", {"loss": shifted(LOSSES, ULP), "grad_norm": NORMS})
    other = check(moved, golden(), FILE)
    assert (same.equal, same.exit_code, same.verdict) == (True, 0, "equal")
    assert same.first_line == "Golden: run-1 gives the 2 metrics of golden.json again."
    assert (other.exit_code, other.verdict, other.first_step) == (1, "differs", 3)
    assert other.first_line == "Golden: loss differs from golden.json in run-2."


def test_only_named_metrics_are_checked_and_the_others_are_told(tmp_path: Path) -> None:
    moved = run(tmp_path, "run-2", {"loss": shifted(LOSSES, ULP), "grad_norm": NORMS})
    found = check(moved, golden(), FILE, ["grad_norm"])
    assert found.equal
    assert found.not_checked == ("loss",)


def test_a_tolerance_of_the_command_line_counts(tmp_path: Path) -> None:
    moved = run(tmp_path, "run-2", {"loss": shifted(LOSSES, ULP), "grad_norm": NORMS})
    assert check(moved, golden(), FILE, tolerances={"loss": Tolerance("ulp", 1)}).equal
    assert not check(moved, golden(loss="5%"), FILE, tolerances={"loss": EXACT}).equal


def test_a_misspelt_metric_is_an_error_and_no_pass(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="did you mean 'loss'"):
        check(run(tmp_path), golden(), FILE, ["los"])
    with pytest.raises(UsageError, match="did you mean 'loss'"):
        check(run(tmp_path, "run-2"), golden(), FILE, tolerances={"losss": EXACT})


def test_a_trackers_prefix_does_not_hide_a_metric(tmp_path: Path) -> None:
    """TensorBoard says `train/loss`, and the trainer state of the same run says `loss`."""
    of_file = Golden("megatron", {"train/loss": metric()})
    assert check(run(tmp_path), of_file, FILE).equal
    assert not check(run(tmp_path, "run-2", {"reward": LOSSES}), of_file, FILE).equal


def test_a_run_may_have_another_name_for_a_metric(tmp_path: Path) -> None:
    other = run(tmp_path, "run-2", {"my_loss": LOSSES, "grad_norm": NORMS})
    assert not check(other, golden(), FILE).equal
    assert check(other, golden(), FILE, ["my_loss=loss"]).equal
