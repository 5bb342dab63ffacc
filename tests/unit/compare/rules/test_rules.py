"""Every rule kept, broken, and skipped with its reason."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

import pytest

from canary.compare.report import Check
from canary.compare.rules import RULES, answers
from canary.compare.rules.asked import RULES as ASKED
from canary.compare.rules.comparison import rule_checks
from canary.compare.rules.rule import Answer
from canary.compare.stats import compare_to_baseline
from canary.record.exact import TORCH_LOOP
from canary.record.types import Distribution, RunRecord
from tests.unit.comparing import altered, example, plain, record, step_time

Change = tuple[tuple[str | int, ...], Any]
EXACT = "exact"
TRAJECTORY = (EXACT, "trajectory")
FIRST = (EXACT, "batches", 0)


def at(place: str, value: Any) -> Change:
    """A value of a record at a dotted path."""
    return tuple(int(key) if key.isdigit() else key for key in place.split(".")), value


def exact(place: str, value: Any) -> Change:
    return at(f"exact.{place}", value)


def args(**values: Any) -> Change:
    return ("config", "trainer_args"), values


def config(key: str, value: Any) -> Change:
    return ("config", key), value


def of_type(name: str) -> Change:
    return config("training_type", name)


def loss(value: Any) -> Change:
    return exact("first_loss.loss", value)


def rates(place: int, value: float) -> Change:
    return exact(f"trajectory.learning_rates.{place}", value)


def advantages(value: float) -> list[Change]:
    return [exact(f"batches.0.{place}.advantages", [value] * 4) for place in (0, 1)]


def made(kind: str, *changes: Change) -> RunRecord:
    whole = example(kind)
    for path, value in changes:
        whole = altered(whole, *path, to=value)
    return whole


def asked(name: str, whole: RunRecord) -> Check:
    return next(check for check in rule_checks([whole]) if check.name == name)


def every_micro(whole: RunRecord, **values: Any) -> RunRecord:
    changed = [[micro | values for micro in step] for step in whole.exact["batches"]]
    return altered(whole, EXACT, "batches", to=changed)


def judged(name: str, whole: RunRecord) -> Answer:
    """What a rule says, also if it was not asked: then the comparison has no check of it."""
    (said,) = (said for rule, said in answers(whole) if rule.id == name)
    has_check = name in {check.name for check in rule_checks([whole])}
    assert has_check == (said.status != "not asked")
    return said


NAMES = {rule.id for rule in RULES}
OF_ROLLOUTS = {"starts_at_ratio_one", "advantages_scaled"}
OF_ROLLOUTS |= {"reward_varies", "rewards_add_up", "sampled_ids_trained", "kto_first_loss"}
RECORDED = OF_ROLLOUTS | {"dpo_first_loss", "labels_contain_eos"}
RECORDED |= {"raw_loss_finite", "at_most_one_bos", "trainable_changed", "frozen_unchanged"}
RECORDED |= {"learning_rate_positive", "loss_bounded"}
OF_UPDATES = {"optimizer_holds_trainable", "updates_not_rounded", "gradients_start_empty"}
OF_UPDATES |= {"clip_before_step", "schedule_once_per_update", "schedule_length"}
OF_UPDATES |= {"stays_in_training_mode", "only_the_optimizer_writes"}
SKIPPED = {
    "sft": {*OF_ROLLOUTS, "dpo_first_loss", "frozen_unchanged"},
    "dpo": OF_ROLLOUTS,
    "grpo": {
        *("dpo_first_loss", "kto_first_loss", "labels_contain_eos", "loss_bounded"),
        *("rewards_add_up", "sampled_ids_trained"),
        "advantages_scaled",  # The record has no prompts.
    },
}


def unsampled(whole: RunRecord) -> RunRecord:
    """As a look that did not see what was sampled."""
    for step in whole.exact["batches"]:
        for micro in step:
            micro.pop("not_sampled", None)
    return whole


@pytest.mark.parametrize("kind", ["sft", "dpo", "grpo"])
def test_a_healthy_run_keeps_all_that_apply_to_it(kind: str) -> None:
    found = {check.name: check for check in rule_checks([unsampled(example(kind))])}
    held = set(found)
    assert held >= RECORDED - SKIPPED[kind]
    assert not held & SKIPPED[kind]
    assert {check.status for check in found.values()} == {"pass"}
    assert all(check.lane == "rule" for check in found.values())


KTO = of_type("kto")
TWO_RANKS = {
    f"{moment}_parameters_sha256": {"0": "aa", "1": "aa"} for moment in ("initial", "final")
}
UNCHANGED = exact("first_update.tensors_unchanged", ["a", "b"])
ZERO, NONE = (f"first_gradient.tensors_with{one}_gradient" for one in ("_zero", "out"))
APART = TWO_RANKS | {"final_parameters_sha256": {"0": "aa", "1": "bb"}}

BROKEN: list[tuple[str, str, list[Change], float]] = [
    ("ranks_agree", "sft", [exact("ranks", APART)], 1),
    ("raw_loss_finite", "sft", [exact("trajectory.losses.5", "nan")], 1),
    ("raw_loss_finite", "sft", [exact("trajectory.grad_norms.5", "inf")], 1),
    ("dpo_first_loss", "dpo", [loss(0.68809)], 0.68809 - math.log(2)),
    ("dpo_first_loss", "dpo", [loss("nan")], math.nan),
    ("pairs_differ", "dpo", [exact("batches", [[{"rows": {"input_ids": ["a", "b"] * 2}}]])], 2),
    ("kto_first_loss", "dpo", [KTO, loss(0.51)], 0.01),
    ("starts_at_ratio_one", "grpo", [exact("trajectory.rl.clip_ratio/low_mean.0", 0.1)], 1),
    ("starts_at_ratio_one", "grpo", [exact("trajectory.rl.kl.0", 0.01)], 0.01),
    ("trainable_changed", "sft", [UNCHANGED], 2),
    ("trainable_changed", "sft", [UNCHANGED, exact(ZERO, ["a"])], 1),
    ("trainable_changed", "sft", [exact("model.trainable_parameters", 0)], 1),
    ("frozen_unchanged", "dpo", [exact("frozen.changed", ["a", "b"])], 2),
    ("frozen_unchanged", "dpo", [exact("frozen.reference_changed", True)], 1),
    ("learning_rate_positive", "sft", [rates(3, 0.0)], 1),
    ("loss_bounded", "sft", [exact("trajectory.losses.4", 5e5)], 1),
    ("learning_rate_positive", "sft", [exact("trajectory.learning_rates", [0.0] * 12)], 12),
]


@pytest.mark.parametrize(("name", "kind", "changes", "delta"), BROKEN)
def test_a_broken_rule_fails_with_its_size(
    name: str, kind: str, changes: list[Change], delta: float
) -> None:
    check = asked(name, made(kind, *changes))
    assert check.status == "fail"
    assert check.group == "correctness"
    assert check.delta == pytest.approx(delta, nan_ok=True)


def test_labels_without_eos_are_broken() -> None:
    check = asked("labels_contain_eos", every_micro(example(), eos_labels=0))
    assert check.status == "fail"
    assert "never learn to stop" in check.message
    assert check.delta == 1


def test_an_eos_that_only_the_models_config_knows_is_judged_where_the_baseline_has_it() -> None:
    unknown = altered(example(), EXACT, "data", to={"rows": 200})
    assert asked("labels_contain_eos", unknown).status == "pass"
    without = every_micro(unknown, eos_labels=0)
    for baseline, status in (([], "warn"), ([without], "warn"), ([unknown], "fail")):
        checks = rule_checks([without], baseline)
        check = next(one for one in checks if one.name == "labels_contain_eos")
        assert check.status == status
        assert ("the model's config" in check.message) == (baseline == [])
    uncounted = every_micro(unknown, eos_labels=0)
    for step in uncounted.exact["batches"]:
        for micro in step:
            del micro["eos_labels"]
    said = judged("labels_contain_eos", uncounted)
    assert (said.status, said.words) == ("not asked", "no EOS token is known")


def test_ids_that_were_never_sampled_are_broken() -> None:
    kept = every_micro(example("grpo"), not_sampled=0)
    assert asked("sampled_ids_trained", kept).status == "pass"
    check = asked("sampled_ids_trained", altered(kept, *FIRST, 0, "not_sampled", to=2))
    assert check.status == "fail"
    assert check.delta == 2


def test_a_second_bos_is_broken() -> None:
    path = (*FIRST, 1, "bos_most_in_a_sequence")
    check = asked("at_most_one_bos", made("dpo", (path, 2)))
    assert check.status == "fail"
    assert check.message == "up to 2 BOS per sequence"


def of_groups(*groups: Sequence[float]) -> RunRecord:
    """Each micro-batch has the advantages of these groups of four, shuffled with their prompts."""
    rows = [(value, str(place)) for place, group in enumerate(groups) for value in group]
    values, prompts = zip(*random.Random(0).sample(rows, len(rows)), strict=True)
    return every_micro(example("grpo"), advantages=[*values], rows={"prompt_ids": [*prompts]})


SCALED = [1.5, -0.5, -0.5, -0.5]


def test_advantages_of_another_scale_are_broken() -> None:
    assert asked("advantages_scaled", of_groups(SCALED, [0.0] * 4)).status == "pass"
    check = asked("advantages_scaled", of_groups([3 * value for value in SCALED]))
    assert check.status == "fail"
    assert check.current == pytest.approx(9.0)


def test_advantages_of_almost_equal_rewards_are_not_judged() -> None:
    """Trl adds 1e-4 to a group's deviation before it divides by it."""
    small = of_groups([value / 2 for value in SCALED])
    assert asked("advantages_scaled", small).status == "fail"
    path = (*TRAJECTORY, "rl", "reward_std")
    alike = altered(small, *path, to=[0.0015] * 12)
    assert judged("advantages_scaled", alike).status == "not asked"
    rounding = of_groups(SCALED, [3e-4] * 4)
    assert asked("advantages_scaled", rounding).status == "pass"


def test_rewards_without_spread_are_broken() -> None:
    flat = Distribution.model_validate(step_time(0.0, 0.0).model_dump() | {"max": 0.0})
    check = asked("reward_varies", made("grpo", (("rl", "reward_std"), flat)))
    assert check.status == "fail"


NO_EOS = exact(
    "batches",
    [[one | {"eos_labels": 0} for one in step] for step in plain(example())["batches"]],
)
REASONS: list[tuple[str, str, list[Change], str]] = [
    ("dpo_first_loss", "dpo", [args(loss_type="ipo")], "for the sigmoid loss"),
    ("dpo_first_loss", "dpo", [args(label_smoothing=0.1)], "without label smoothing"),
    (
        "dpo_first_loss",
        "dpo",
        [exact("model.reference_sha256", "0" * 64)],
        "reference model differ",
    ),
    ("dpo_first_loss", "dpo", [config("lora_dropout", 0.1)], "dropout makes"),
    ("dpo_first_loss", "dpo", [exact("first_loss", {})], "was not recorded"),
    ("kto_first_loss", "dpo", [KTO, args(desirable_weight=2.0)], "the sides are weighted"),
    ("starts_at_ratio_one", "grpo", [exact("trajectory.rl", {})], "neither clip ratio nor KL"),
    ("advantages_scaled", "grpo", [args(scale_rewards=False)], "scale_rewards is not by group"),
    ("advantages_scaled", "grpo", [args(loss_type="dr_grpo")], "dr_grpo does not scale"),
    ("advantages_scaled", "grpo", [of_type("rloo")], "RLOO does not scale"),
    ("advantages_scaled", "grpo", [], "prompts were not recorded"),
    ("reward_varies", "grpo", [at("rl", {}), exact("trajectory.rl", {})], "no rewards were"),
    (
        "labels_contain_eos",
        "sft",
        [config("max_length", 16), NO_EOS],
        "every batch is cut at max_length",
    ),
    ("labels_contain_eos", "dpo", [of_type("reward")], "labels of tokens"),
    (
        "at_most_one_bos",
        "sft",
        [exact("data.tokenizer.special_tokens.bos_token.id", 2)],
        "BOS is also EOS or pad",
    ),
    ("at_most_one_bos", "sft", [args(packing=True)], "rows that are not packed"),
    ("trainable_changed", "sft", [rates(0, 0.0)], "the learning rate of step 1 is 0"),
    ("trainable_changed", "grpo", advantages(0.0), "every advantage of step 1 is 0"),
    ("frozen_unchanged", "sft", [exact("frozen", {})], "were not recorded"),
    ("learning_rate_positive", "sft", [exact("trajectory.learning_rates", [0.0])], "a warm-up"),
    ("frozen_unchanged", "dpo", [args(sync_ref_model=True)], "sync_ref_model"),
]


@pytest.mark.parametrize(("name", "kind", "changes", "reason"), REASONS)
def test_a_precondition_that_fails_skips_with_the_reason(
    name: str, kind: str, changes: list[Change], reason: str
) -> None:
    said = judged(name, made(kind, *changes))
    assert said.status == "not asked"
    assert reason in said.words


OF_DATA = {"rows_have_labels", "bos_as_tokenized", "group_prompts", "batches_differ"}
OF_DATA |= {"each_reward_varies", "worker_draws", "stream_split"}
"""Held by test_data_rules."""

UNUSED = [UNCHANGED, exact(NONE, ["a", "b"])]
BEFORE_A_ZERO = [
    exact("first_update.tensors_unchanged", ["adapter.down.weight"]),
    exact("first_gradient.groups", {"adapter.down": 0.0, "adapter.up": 0.5}),
]
NO_GRADIENT = [BEFORE_A_ZERO[0], exact("first_gradient.groups", {"adapter.down": 0.0})]
MOVING_AVERAGE = [exact("frozen.changed", ["teacher.weight"]), config("trainer", TORCH_LOOP)]
GROWN = [config("training_type", "exec"), exact("batches", []), exact("trajectory.losses.4", 5e5)]
DOUBTED: list[tuple[str, str, list[Change], str]] = [
    ("loss_bounded", "sft", GROWN, "do its targets grow"),
    ("learning_rate_positive", "sft", [rates(0, 0.0)], "only the first steps: is this a warm-up"),
    ("trainable_changed", "sft", UNUSED, "they get no gradient: are they unused by the loss"),
    ("trainable_changed", "sft", BEFORE_A_ZERO, "or do they feed a tensor that is 0"),
    ("frozen_unchanged", "sft", MOVING_AVERAGE, "does the loop write them on purpose"),
    ("trainable_changed", "sft", [UNCHANGED, exact(ZERO, ["b", "a"])], "does the loss use them"),
    ("trainable_changed", "sft", [UNCHANGED, exact(NONE, ["b"]), exact(ZERO, ["a"])], "is 0: does"),
    ("trainable_changed", "sft", [UNCHANGED, exact(ZERO, [*map(str, range(48))])], "is 0: does"),
    ("trainable_changed", "sft", [UNCHANGED, exact("first_gradient", {})], "did not see their"),
]


def test_a_gradient_of_zero_everywhere_is_broken() -> None:
    assert asked("trainable_changed", made("sft", *NO_GRADIENT)).status == "fail"


def test_a_bias_whose_gradient_is_a_sum_of_zero_breaks_nothing() -> None:
    """The mean of the signs of an absolute error, over an even number of rows."""
    still = exact("first_update.tensors_unchanged", ["2.bias"])
    said = judged("trainable_changed", made("sft", still, exact(ZERO, ["2.bias"])))
    assert said.status == "holds"
    assert "1 other had a gradient of 0" in said.words
    weight = exact("first_update.tensors_unchanged", ["2.weight"])
    assert (
        judged("trainable_changed", made("sft", weight, exact(ZERO, ["2.weight"]))).status == "note"
    )


@pytest.mark.parametrize(("name", "kind", "changes", "reason"), DOUBTED)
def test_a_precondition_in_doubt_warns_where_there_is_no_baseline(
    name: str, kind: str, changes: list[Change], reason: str
) -> None:
    check = asked(name, made(kind, *changes))
    assert check.status == "warn"
    assert reason in check.message
    first = compare_to_baseline(made(kind, *changes), [], history=True)
    assert first.verdict == "no-baseline"


def test_text_without_any_eos_in_its_inputs_may_be_plain_language_modelling() -> None:
    plain = every_micro(example(), eos_labels=0, eos_inputs=0)
    check = asked("labels_contain_eos", plain)
    assert check.status == "warn"
    assert "no input has EOS" in check.message
    masked = every_micro(example(), eos_labels=0, eos_inputs=4)
    assert asked("labels_contain_eos", masked).status == "fail"
    special = (EXACT, "data", "tokenizer", "special_tokens", "mask_token")
    filled = altered(masked, *special, to={"token": "<mask>", "id": 9})
    assert asked("labels_contain_eos", filled).status == "warn"


BOTH: list[tuple[str, str, list[Change]]] = [
    *[(name, kind, changes) for name, kind, changes, _ in BROKEN],
    *[(name, kind, changes) for name, kind, changes, _ in DOUBTED],
]


@pytest.mark.parametrize(("name", "kind", "changes"), BOTH[::6])
def test_what_the_baseline_breaks_in_the_same_way_is_a_warning_of_both_sides(
    name: str, kind: str, changes: list[Change]
) -> None:
    broken = made(kind, *changes)
    found = {check.name: check for check in rule_checks([broken], [broken])}
    assert found[name].status == "warn"
    assert found[name].message.endswith("(the same on the baseline)")


@pytest.mark.parametrize(("name", "kind", "changes"), BOTH[::6])
def test_what_the_baseline_keeps_and_the_current_side_breaks_fails(
    name: str, kind: str, changes: list[Change]
) -> None:
    found = {c.name: c for c in rule_checks([made(kind, *changes)], [example(kind)])}
    assert found[name].status == "fail"


def test_equal_runs_with_a_broken_rule_are_no_regression() -> None:
    def unused(number: int, *more: str) -> RunRecord:
        whole = record(number)
        return altered(
            whole, EXACT, "first_update", "tensors_unchanged", to=["pooler.weight", *more]
        )

    baseline = [unused(place) for place in range(4)]
    found = compare_to_baseline(unused(9), baseline)
    assert found.verdict in ("pass", "inconclusive")
    assert found.check("trainable_changed").status == "warn"
    assert not found.diagnosis.suspects
    worse = compare_to_baseline(unused(9, "layer.weight"), baseline)
    assert worse.verdict == "regression"
    assert "layer.weight" in worse.check("trainable_changed").message
    newly = compare_to_baseline(unused(9), [record(place) for place in range(4)])
    assert newly.verdict == "regression"


@pytest.mark.parametrize(("filled_in", "status"), [(16, "holds"), (64, "not asked")])
def test_sizes_that_trl_fills_in_itself_are_no_settings(filled_in: int, status: str) -> None:
    sizes = {"gradient_accumulation_steps": 2, "per_device_train_batch_size": 8}
    given = {**sizes, "steps_per_generation": 2, "generation_batch_size": filled_in}
    whole = altered(of_groups(SCALED), "config", "trainer_args", to=given)
    assert judged("advantages_scaled", whole).status == status
    equal = judged("advantages_scaled", of_groups([0.0] * 4))
    assert equal.words == "the rewards are equal in every group"


OTHER_REFERENCE = exact("model.reference_sha256", "0" * 64)
KEPT: list[tuple[str, str, list[Change]]] = [
    ("learning_rate_positive", "sft", [rates(0, 0.0), config("warmup_steps", 2)]),
    ("learning_rate_positive", "sft", [rates(0, 0.0), args(warmup_ratio=0.03)]),
    ("trainable_changed", "sft", [exact("first_update.tensors_unchanged", ["x.lora_A.weight"])]),
    ("dpo_first_loss", "dpo", [loss(0.69315)]),
    ("dpo_first_loss", "dpo", [args(loss_type=["sigmoid"])]),
    ("kto_first_loss", "dpo", [KTO, loss(0.5)]),
    ("starts_at_ratio_one", "grpo", [exact("trajectory.rl.kl.0", 0.5), OTHER_REFERENCE]),
]


@pytest.mark.parametrize(("name", "kind", "changes"), KEPT)
def test_what_is_allowed_does_not_break_a_rule(name: str, kind: str, changes: list[Change]) -> None:
    assert asked(name, made(kind, *changes)).status == "pass"


def test_an_adapter_has_itself_switched_off_as_reference() -> None:
    whole = made("dpo", config("use_peft", True), ((EXACT, "first_loss", "loss"), 0.70))
    whole.exact["model"].pop("reference_sha256", None)
    assert asked("dpo_first_loss", whole).status == "fail"
    whole.config["use_peft"] = False
    assert judged("dpo_first_loss", whole).status == "not asked"


def test_a_run_without_a_look_has_no_rules() -> None:
    assert list(rule_checks([altered(example(), EXACT, to={})])) == []


def test_a_broken_rule_is_a_regression_whatever_the_config_says() -> None:
    baseline = [record(place, kind="dpo") for place in range(3)]
    current = altered(record(9, kind="dpo"), "config", "learning_rate", to=1.0)
    current = altered(current, EXACT, "frozen", "changed", to=["a"])
    found = compare_to_baseline(current, baseline)
    assert found.check("frozen_unchanged").status == "fail"
    assert found.verdict == "regression"


def test_ranks_with_equal_parameters_agree_and_ranks_with_a_part_each_are_not_asked() -> None:
    agreeing = made("sft", ((EXACT, "ranks"), TWO_RANKS))
    assert asked("ranks_agree", agreeing).status == "pass"
    sharded = made("sft", ((EXACT, "ranks"), APART | {"sharded": True}))
    said = judged("ranks_agree", sharded)
    assert (said.status, said.words) == (
        "not asked",
        "each rank holds only a part of the parameters",
    )


def test_every_rule_is_broken_by_a_test_above() -> None:
    by_hand = {"labels_contain_eos", "at_most_one_bos", "advantages_scaled", "reward_varies"}
    by_hand |= {"sampled_ids_trained", "rewards_add_up"}  # the last in test_ppo_compared
    by_hand |= OF_UPDATES | OF_DATA  # in test_update_rules, test_data_rules
    by_hand |= {"own_target", "loss_takes_logits", "weights_loaded", "closed_turns"}
    by_hand |= {"clip_takes_effect", "new_tokens_train", "pair_labels"}
    by_hand |= {"sampler_logprobs", *(rule.id for rule in ASKED)}  # in files of their own
    assert {name for name, *_ in BROKEN} | by_hand == NAMES
