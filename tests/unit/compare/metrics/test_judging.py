"""Gates in whole comparisons: limits of each kind, few and many runs, names, families."""

from __future__ import annotations

import math
from typing import Any

import pytest

from canary.baseline.comparability import is_imported
from canary.compare.metrics.judging import check_names, metric_gate_checks
from canary.compare.report import Check, Comparison
from canary.compare.stats import compare_to_baseline
from canary.record.curves import Curve
from canary.record.types import RunRecord
from canary.report.render import render
from tests.unit.comparing import altered, committed, record
from tests.unit.gating import gate, imported, judged, runs, scattered, with_curve


def answer(current: list[RunRecord], baseline: list[RunRecord], **keys: Any) -> Check:
    """The check of one gate on the reward."""
    return judged(
        compare_to_baseline(current, baseline, metrics=[gate(keys.pop("name", "reward"), **keys)])
    )


HISTORY = runs(scattered(10, 1.0, 0.01))


# A limit that is a number.


@pytest.mark.parametrize(
    ("value", "keys", "status"),
    [
        (1.0, {"limit": 1.1, "worse": "higher"}, "pass"),
        (1.2, {"limit": 1.1, "worse": "higher"}, "fail"),
        (1.2, {"limit": 1.1, "worse": "lower"}, "pass"),
        (1.0, {"limit": 1.1, "worse": "lower"}, "fail"),
        (1.0, {"limit": 1.0, "worse": "higher", "exclusive": True}, "fail"),
        (1.1, {"limit": 1.0, "worse": "both"}, "fail"),
    ],
)
def test_a_number_decides_with_and_without_a_baseline(
    value: float, keys: dict[str, Any], status: str
) -> None:
    for stored in ([], HISTORY):
        found = answer(runs([value], 100), stored, **keys)
        assert found.status == status
        assert found.threshold == keys["limit"]


def test_the_worst_of_several_current_runs_decides() -> None:
    assert answer(runs([1.0, 1.2], 100), [], limit=1.1, worse="higher").status == "fail"


def test_a_spike_is_a_warning_that_names_its_step() -> None:
    values = [1.0] * 20
    values[6] = 9.0
    found = answer([with_curve(record(1), values, "reward")], [], statistic="max", limit=2.0,
                   worse="higher")  # fmt: skip
    assert found.status == "warn"
    assert "(7)" in found.message
    assert "one spike alone does not decide" in found.message


@pytest.mark.parametrize("limit", [2.0, "5%", "history"])
def test_nan_fails_whatever_the_limit(limit: Any) -> None:
    values = [1.0] * 20
    values[-1] = math.nan
    current = [with_curve(record(100), values, "reward")]
    found = answer(current, HISTORY, limit=limit, worse="higher")
    assert found.status == "fail"
    assert "NaN" in found.message
    assert "step 20" in found.message


# A limit in percent of the baseline.


def test_a_real_and_large_change_fails() -> None:
    found = answer(runs([0.9], 100), HISTORY, limit="5%")
    assert found.status == "fail"
    assert found.interval is not None
    assert found.interval[1] < 0
    assert found.threshold == -5.0


@pytest.mark.parametrize(
    ("value", "keys", "status"),
    [
        (0.95, {"limit": "10%"}, "warn"),
        (1.5, {"limit": "5%"}, "pass"),
        (0.9, {"limit": "5%", "worse": "both"}, "fail"),
        (1.1, {"limit": "5%", "worse": "both"}, "fail"),
    ],
)
def test_a_real_change_is_judged_by_its_size_and_direction(
    value: float, keys: dict[str, Any], status: str
) -> None:
    assert answer(runs([value], 100), HISTORY, **keys).status == status


def test_noise_is_inconclusive_and_says_what_would_decide() -> None:
    found = answer(runs([0.9], 100), runs(scattered(5, 1.0, 0.2)), limit="5%")
    assert found.status == "inconclusive"
    assert "too noisy to rule out -5% (could be up to -" in found.message
    assert found.message.endswith("decide")
    assert found.detectable is not None
    assert found.detectable < -5


@pytest.mark.parametrize(("value", "status"), [(0.97, "pass"), (0.9, "fail")])
def test_with_few_baseline_runs_the_estimate_decides_and_says_so(value: float, status: str) -> None:
    found = answer(runs([value], 100), HISTORY[:1], limit="5%")
    assert found.status == status
    assert "spread is not known" in found.message


def test_the_promised_number_of_runs_decides() -> None:
    stored = runs(scattered(30, 1.0, 0.03))
    found = answer(runs([1.0], 100), stored, limit="5%")
    assert found.status == "inconclusive"
    count = int(found.message.partition("About ")[2].split()[0])
    more = runs([1.0] * (1 + count), 100)
    assert answer(more, stored, limit="5%").status == "pass"


def test_a_baseline_of_zero_has_no_percentages() -> None:
    found = answer(runs([0.5], 100), runs([0.0] * 5), limit="5%")
    assert found.status == "inconclusive"
    assert "0 on the baseline" in found.message


def test_a_negative_metric_gets_worse_downwards() -> None:
    stored = runs([-value for value in scattered(10, 1.0, 0.01)])
    assert answer(runs([-1.2], 100), stored, limit="5%").status == "fail"
    assert answer(runs([-0.8], 100), stored, limit="5%").status == "pass"


# A limit from the spread of the stored runs.


def test_a_run_within_the_spread_passes_and_one_beyond_fails() -> None:
    passed, failed = (answer(runs([v], 100), HISTORY, limit="history") for v in (0.995, 0.9))
    assert (passed.status, failed.status) == ("pass", "fail")
    assert passed.detectable is not None
    assert -10 < passed.detectable < -3
    assert "10 stored runs predict at least" in passed.message
    few = answer(runs([0.5], 100), HISTORY[:2], limit="history")
    assert few.status == "inconclusive", "two runs show no spread"


# What is missing is told and never passes.


def test_a_metric_that_only_the_baseline_has_never_passes() -> None:
    for keys in ({"limit": "5%"}, {"limit": 0.5}, {"limit": "history"}):
        found = answer([record(100)], HISTORY, **keys)
        assert found.status == "fail"
        assert "recorded on the baseline but not in run" in found.message


def test_a_name_that_no_run_has_is_told_with_the_nearest() -> None:
    found = answer(runs([1.0], 100), HISTORY, name="rewrd", limit=1.0, worse="lower")
    assert found.status == "inconclusive"
    assert "did you mean 'reward'?" in found.message


def test_one_of_several_current_runs_without_the_metric_is_enough() -> None:
    found = answer([*runs([1.0], 100), record(101)], HISTORY, limit="5%")
    assert found.status == "fail"


def test_a_curve_that_ends_before_the_baselines_does_not_pass() -> None:
    short = with_curve(record(100), [1.0] * 15, "reward")
    for limit in ("5%", "history", 0.5):
        found = answer([short], HISTORY, limit=limit)
        assert found.status == "inconclusive"
        assert "ends at step 15" in found.message


def test_without_a_baseline_only_numbers_are_judged() -> None:
    assert answer(runs([1.0], 100), [], limit="5%").status == "skip"
    found = compare_to_baseline(runs([0.1], 100), [], metrics=[gate("reward", limit=0.5)])
    assert found.verdict == "regression"


# Both names of a metric.


def test_a_gate_finds_a_metric_by_the_name_in_its_source() -> None:
    names = {"reward": "critic/score/mean"}
    stored, now = ([imported(run, names) for run in side] for side in (HISTORY, runs([0.9], 100)))
    for name in ("reward", "critic/score/mean"):
        assert answer(now, stored, name=name, limit="5%", worse="lower").status == "fail"


def test_the_sides_may_have_it_under_different_names() -> None:
    now = imported(runs([0.9], 100)[0], {"reward": "score"})
    assert answer([now], [imported(run) for run in HISTORY], limit="5%").status == "fail"


# The family.


def test_gates_of_one_metric_and_statistic_have_names_of_their_own() -> None:
    gates = [gate("loss", limit=1.0), gate("loss", limit=2.0, last=3), gate("loss", limit="5%")]
    assert check_names(gates) == ["metrics.loss.mean", "metrics.loss.mean.2", "metrics.loss.mean.3"]


def test_the_error_budget_is_shared_by_all_gates() -> None:
    """3.2 standard deviations: beyond the budget of one gate, within that of each of fifty."""
    stored = runs(scattered(30, 1.0, 0.01, 3), name="reward")
    values = [run.curves["reward"].values[0] for run in stored]
    mean = sum(values) / 30
    sd = math.sqrt(sum((v - mean) ** 2 for v in values) / 29)
    current = runs([mean - 3.2 * sd], 100)
    many = [gate("reward", limit="history") for _ in range(50)]
    assert metric_gate_checks(current, stored, many[:1], 0.005)[0].status == "fail"
    # Gates that do not fail share the budget with it.
    others = [gate("loss", limit="history", last=last) for last in range(1, 50)]
    sides = [
        [with_curve(run, run.curves["reward"].values, "loss") for run in side]
        for side in (current, stored)
    ]
    assert metric_gate_checks(sides[0], sides[1], [many[0], *others], 0.005)[0].status == "pass"


# Groups, acceptance, first lines.


def changed_learning(name: str) -> Comparison:
    """A comparison in which another learning rate changed the losses, and a metric got worse."""
    before = [with_curve(committed(record(n)), [1.0] * 20, name) for n in range(3)]
    now = altered(record(100), "config", "learning_rate", to=0.123)
    losses = [2 * loss for loss in now.exact["trajectory"]["losses"] if loss is not None]
    now = altered(now, "exact", "trajectory", "losses", to=losses)
    now = with_curve(committed(now, "b" * 40), [2.0] * 20, name)
    return compare_to_baseline(now, before, metrics=[gate(name, limit="5%", worse="higher")])


def test_an_accepted_change_of_learning_covers_metrics_of_learning_alone() -> None:
    assert judged(changed_learning("kl")).status == "changed"
    for name in ("step_time_s", "tokens_per_sec_per_gpu"):
        assert judged(changed_learning(name)).status == "fail"


def test_a_name_from_a_stranger_does_no_harm_in_any_output() -> None:
    name = "a|b <img src=x> `c` [d](e) *f*"
    current = [with_curve(record(1), [3.0] * 20, name)]
    found = compare_to_baseline(current, [], metrics=[gate(name, limit=2.0, worse="higher")])
    markdown = render(found, "markdown")
    assert "<img" not in markdown
    assert "](e)" not in markdown.replace("\\]", "")
    for form in ("text", "json"):
        assert name in render(found, form, 400)


def test_a_curve_that_is_empty_is_no_curve() -> None:
    empty = record(100).model_copy(update={"curves": {"reward": Curve()}})
    assert answer([empty], [], limit=1.0).status == "inconclusive"
    assert not is_imported(empty)


# Values that are missing.


def with_steps(number: int, steps: list[int], value: float = 1.0) -> RunRecord:
    points = Curve(steps=steps, values=[value] * len(steps))
    return record(number).model_copy(update={"curves": {"reward": points}})


@pytest.mark.parametrize(
    ("steps", "limit"),
    [([20], "5%"), ([*range(1, 10), *range(11, 21)], "history"), ([10**15], 0.5)],
)
def test_a_curve_with_gaps_is_not_judged_by_the_rest(steps: list[int], limit: Any) -> None:
    found = answer([with_steps(100, steps)], HISTORY[:3], limit=limit, worse="lower")
    assert found.status == "inconclusive"
    assert "every run of the baseline has" in found.message


def test_a_gap_outside_of_the_steps_that_count_decides_nothing() -> None:
    sparse = [with_steps(100, [1, *range(11, 21)])]
    assert answer(sparse, HISTORY[:3], limit="50%", worse="lower", last=5).status == "pass"
    assert answer(sparse, HISTORY[:3], limit="50%", from_step=11).status == "pass"


def test_steps_that_differ_from_run_to_run_are_no_gaps() -> None:
    stored = [with_steps(run, [*range(1 + run, 21, 3), 21, 40]) for run in range(3)]
    now = with_steps(9, [2, 5, 7, 9, 11, 15, 21, 40])
    assert answer([now], stored, limit="50%").status == "pass"


@pytest.mark.parametrize("steps", [[-1, 2], [1, 2**53]])
def test_a_curve_has_only_steps_that_a_training_has(steps: list[int]) -> None:
    with pytest.raises(ValueError, match="negative or too large"):
        Curve(steps=steps, values=[1.0, 1.0])


@pytest.mark.parametrize("name", ["loss", "my_reward"])
def test_a_gated_metric_that_the_source_no_longer_has_fails(name: str) -> None:
    stored = [imported(with_curve(run, [1.0] * 20, name)) for run in runs([1.0] * 3)]
    now = imported(record(100))
    found = answer([now], stored, name=name, limit="5%", worse="higher")
    assert found.status == "fail"
    assert "recorded on the baseline but not in run" in found.message


def test_a_gated_row_metric_that_vanishes_fails_without_an_import_too() -> None:
    stored = [with_curve(record(number), [1.0] * 20, "grad_norm") for number in range(3)]
    gated = altered(record(100), "config", "metrics", to=[{"name": "grad_norm"}])
    assert answer([gated], stored, name="grad_norm", limit="5%").status == "fail"
    assert answer([record(100)], stored, name="grad_norm", limit="5%").status == "inconclusive"


def test_a_large_number_of_spikes_is_refused_and_does_not_hang() -> None:
    with pytest.raises(ValueError, match="less than or equal to 10"):
        gate("reward", spikes=1_000_000_000, limit="5%")
    found = answer(runs([0.5], 100), HISTORY, statistic="min", spikes=10, limit="5%")
    assert found.status == "fail"
