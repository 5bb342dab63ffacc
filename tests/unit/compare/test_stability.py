"""Does the training still train: limits of their own, and the baseline's own range."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest

from canary.compare.report import Check
from canary.compare.stability import stability_checks
from canary.compare.stats import compare_to_baseline
from canary.compare.thresholds import DEFAULT_THRESHOLDS
from canary.record.end_loss import tail_mean
from canary.record.jsonio import shown
from canary.record.types import RunRecord
from tests.unit.comparing import altered, example, history, record, trained

LOSSES = ("stability", "loss_values")
GRADS = ("stability", "grad_norm_values")


def found(
    name: str, current: RunRecord | Sequence[RunRecord], *baseline: RunRecord
) -> Check | None:
    now = [current] if isinstance(current, RunRecord) else list(current)
    before = list(baseline) or [example(str(now[0].config["training_type"]))]
    checks = stability_checks(now, before, DEFAULT_THRESHOLDS)
    return next((check for check in checks if check.name == name), None)


def check(name: str, current: RunRecord | Sequence[RunRecord], *baseline: RunRecord) -> Check:
    made = found(name, current, *baseline)
    assert made is not None
    return made


def losing(values: Sequence[float], kind: str = "sft") -> RunRecord:
    return altered(example(kind), *LOSSES, to=list(values))


def bad(name: str, count: int, at: list[int]) -> RunRecord:
    whole = altered(example(), "stability", f"{name}_steps", to=count)
    return altered(whole, "stability", f"{name}_at", to=at)


@pytest.mark.parametrize("name", ["nan", "inf"])
def test_one_bad_step_fails_and_says_where(name: str) -> None:
    made = check(f"{name}_steps", bad(name, 3, [17, 18, 19]))
    assert made.status == "fail"
    assert made.delta == 3
    assert made.current == 3
    assert "first at step 17" in made.message
    assert check(f"{name}_steps", example()).status == "pass"


def test_the_worst_run_speaks_and_a_bad_baseline_excuses_nothing() -> None:
    side = [bad("nan", 1, [2]), bad("nan", 2, [3, 4]), example()]
    assert check(f"{'nan'}_steps", side).current == 2
    made = check(f"{'nan'}_steps", bad("nan", 1, [2]), bad("nan", 5, [1]))
    assert made.status == "fail"
    assert made.delta == -4


def rising(start: float, end: float, steps: int = 100) -> RunRecord:
    return losing([start + (end - start) * place / (steps - 1) for place in range(steps)])


def test_a_loss_that_rises_diverges_within_a_hundred_steps() -> None:
    made = check("loss_divergence", rising(1.0, 2.0))
    assert made.status == "fail"
    assert made.current == pytest.approx(1.9545 / 1.0455, rel=1e-3)
    assert isinstance(made.baseline, float)
    assert made.delta == pytest.approx(1.9545 / 1.0455 - made.baseline, rel=1e-3)
    assert made.threshold == 1.5
    assert check("loss_divergence", rising(1.0, 1.5)).status == "pass"
    assert check("loss_divergence", rising(2.0, 0.5)).status == "pass"


def test_a_loss_that_always_rises_so_did_not_diverge_anew() -> None:
    made = check("loss_divergence", rising(1.0, 2.1), rising(1.0, 2.0))
    assert made.status == "warn"
    assert made.message.endswith("as on the baseline")
    assert check("loss_divergence", rising(1.0, 4.0), rising(1.0, 2.0)).status == "fail"


def test_a_spike_in_the_middle_is_no_divergence_and_one_at_the_end_is() -> None:
    calm = [1.0] * 100
    assert check("loss_divergence", losing([*calm[:50], 9.0, *calm[51:]])).status == "pass"
    assert check("loss_divergence", losing([*calm[:90], *[2.0] * 10])).status == "fail"


@pytest.mark.parametrize("kind", ["sft", "grpo"])
def test_a_run_that_ends_without_a_finite_loss_diverged(kind: str) -> None:
    made = check("loss_divergence", losing([1.0] * 99 + [math.nan], kind))
    assert made.status == "fail"
    assert made.message.endswith("the last loss is not finite")
    assert made.current == str(math.nan)
    assert made.delta == math.inf


def test_the_final_loss_is_a_mean_of_the_last_tenth() -> None:
    assert tail_mean([5.0] * 90 + [1.0, 3.0] * 5) == 2.0
    assert tail_mean([1.0, 3.0, 5.0]) == 4.0
    assert tail_mean([4.0, math.nan, 2.0, math.inf]) == 3.0
    assert tail_mean([4.0]) is None
    assert tail_mean([]) is None


@pytest.mark.parametrize("broken", [20, 100])
def test_a_run_that_ends_without_a_finite_loss_ends_with_that(broken: int) -> None:
    losses = [*[2.4] * (100 - broken), *[math.nan] * broken]
    made = check("final_loss", losing(losses))
    assert made.status == "fail"
    assert made.current == str(math.nan)
    assert f"-> {shown(str(math.nan))}: not finite at the end" in made.message


def test_final_losses_that_have_no_scale_are_skipped() -> None:
    assert check("final_loss", example("grpo")).status == "skip"
    assert check("final_loss", example(), losing([0.0] * 100)).status == "skip"


def gradients(values: list[Any]) -> RunRecord:
    return altered(example(), *GRADS, to=values)


def test_gradients_explode_against_the_baselines_own_largest() -> None:
    baseline = gradients([1.0, 2.0, None]), gradients([1.0, 4.0])
    made = check("gradient_explosion", gradients([1.0, 21.0, None]), *baseline)
    assert made.status == "fail"
    assert made.baseline == 4.0
    assert made.delta == 17.0
    assert made.delta_pct == pytest.approx(425.0)
    assert check("gradient_explosion", gradients([1.0, 19.0]), *baseline).status == "pass"


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_gradient_that_is_not_finite_explodes(value: float) -> None:
    made = check("gradient_explosion", gradients([1.0, value]), gradients([1.0]))
    assert made.status == "fail"
    assert made.delta == math.inf
    assert made.current == str(value), "as the alert says it"
    assert f"1 -> {shown(str(value))}, limit" in made.message


def test_gradients_without_a_baseline_range_are_skipped() -> None:
    for current, baseline in (
        ([None], [1.0]),
        ([1.0], [None]),
        ([1.0], [0.0]),
        ([1.0], [math.inf]),
    ):
        made = check("gradient_explosion", gradients(current), gradients(baseline))
        assert made.status == "skip"


def with_mean(kind: str, metric: str, mean: float, **parts: float) -> RunRecord:
    old = example(kind).rl[metric]
    return altered(example(kind), "rl", metric, to=old.model_copy(update={"mean": mean, **parts}))


@pytest.mark.parametrize(
    ("before", "after", "status"),
    [
        (0.02, 0.11, "fail"),
        (0.0001, 0.04, "pass"),
        (0.0001, 0.06, "fail"),
    ],
)
def test_kl_blows_up_in_ratio_above_a_floor(before: float, after: float, status: str) -> None:
    made = check("kl", with_mean("grpo", "kl", after), with_mean("grpo", "kl", before))
    assert made.status == status
    assert made.unit == "nats"
    assert made.delta == pytest.approx(after - before)


def telling(**means: float) -> RunRecord:
    told = example("grpo").rl["reward"]
    rl = {
        name.replace("__", "/"): told.model_copy(update={"mean": mean})
        for name, mean in means.items()
    }
    return altered(example("sft"), "rl", to=rl)


@pytest.mark.parametrize(
    ("name", "metric"),
    [("margin", "margin"), ("reward", "reward"), ("entropy", "objective__entropy")],
)
def test_a_quantity_is_judged_under_whatever_name_its_trainer_has_for_it(
    name: str, metric: str
) -> None:
    made = check(name, telling(**{metric: 0.01}), telling(**{metric: 0.9}))
    assert made.status == "fail"
    assert check(name, telling(**{metric: 0.9}), telling(**{metric: 0.9})).status == "pass"
    made = check(name, telling(**{metric: math.nan}), telling(**{metric: 0.9}))
    assert made.status == "fail"


def test_a_quantity_under_two_names_may_have_two_scales_and_is_not_compared() -> None:
    assert check("kl", telling(objective__kl=8.0), telling(kl=0.1)).status == "skip"
    both = telling(kl=0.1, objective__kl=8.0)
    assert check("kl", telling(objective__kl=8.0), both).status == "pass"


@pytest.mark.parametrize(("after", "status"), [(0.9, "pass"), (1.1, "warn")])
def test_a_reward_that_jumps_is_suspicious(after: float, status: str) -> None:
    baseline = with_mean("grpo", "reward", 0.6, std=0.2)
    made = check("reward", with_mean("grpo", "reward", after), baseline)
    assert made.status == status
    assert ("suspiciously good" in made.message) == (status == "warn")


def test_a_metric_that_is_no_number_any_more_fails() -> None:
    made = check("reward", with_mean("grpo", "reward", math.nan), example("grpo"))
    assert made.status == "fail"
    assert made.delta == 1


def test_rewards_that_never_varied_are_skipped() -> None:
    flat = with_mean("grpo", "reward", 0.6, std=0.0)
    assert check("reward", example("grpo"), flat).status == "skip"


@pytest.mark.parametrize(
    ("steps", "status", "verdict"),
    [
        (100, "pass", "pass"),
        (120, "pass", "pass"),
        (95, "warn", "pass"),
        (70, "fail", "regression"),
    ],
)
def test_a_training_that_ends_early_without_an_error_does_not_pass(
    steps: int, status: str, verdict: str
) -> None:
    current = trained(record(100), steps)
    found = compare_to_baseline(current, history(0.005), history=True)
    assert found.check("steps_trained").status == status
    assert found.verdict == verdict
    if verdict == "regression":
        assert found.first_line.startswith("Regression: trained steps 100 -> 70: the training")


def test_fewer_steps_that_the_config_asks_for_need_acceptance() -> None:
    fewer = trained(record(100), 50)
    found = compare_to_baseline(altered(fewer, "config", "max_steps", to=50), history(0.005))
    assert found.verdict == "changed"
    assert found.first_line.startswith("Changed: trained steps 100 -> 50")
