"""Rules about the optimizer and its updates: kept, broken, in doubt and not asked."""

from __future__ import annotations

from typing import Any

import pytest

from canary.compare.rules import RULES
from canary.compare.rules.comparison import rule_checks
from canary.compare.rules.rule import Answer
from canary.compare.stats import compare_to_baseline
from canary.record.types import Launch, RunRecord
from tests.unit.comparing import altered, example

ADAM: dict[str, Any] = {
    "class": "AdamW",
    "tensors": 21,
    "with_gradient": 21,
    "updates": 12,
    "backwards": [4] * 12,
    "rates": [1e-5] * 12,
    "closure": False,
    "left": 0,
    "emptied": 11,
    "clips_before": 12,
    "clips_after": 0,
    "clips_after_acted": 0,
    "written_before": [],
}
HOLDING = {"tensors": 21, "trainable": 21, "trainable_held": 21, "missing": 0, "thawed": 0}
HEAD = HOLDING | {"trainable_held": 2, "missing": 19, "missing_names": ["body.weight"]}
HEAD["left_out"] = True
LOST = {"dtype": "bfloat16", "tensors": 21, "still": 5, "still_names": ["norm.weight"]}
LOST |= {"asked": 1000, "lost": 900}
WARM = [0.0, 5e-6, *[1e-5] * 10]
ONCE = {"class": "LambdaLR", "length": 12, "begun_at": 0, "steps": [1] * 11}
OFTEN = ONCE | {"steps": [4] * 11}


def answered(
    rule: str, *, adam: dict[str, Any] | None = None, record: RunRecord | None = None, **facts: Any
) -> Answer:
    """What a rule says of a healthy look, changed in one optimizer's facts or in all."""
    whole = example() if record is None else record
    optimizers = [ADAM | (adam or {})]
    updates: Any = {"optimizers": optimizers, "holding": HOLDING, "schedules": [], **facts}
    whole.exact["facts"] = {"updates": updates}
    return next(one for one in RULES if one.id == rule).judge(whole)


BROKEN: list[tuple[str, dict[str, Any]]] = [
    ("optimizer_holds_trainable", {"holding": HOLDING | {"tensors": 0, "trainable_held": 0}}),
    ("optimizer_holds_trainable", {"holding": HOLDING | {"thawed": 2, "thawed_names": ["a"]}}),
    (
        "optimizer_holds_trainable",
        {"holding": HOLDING | {"trainable_held": 2, "missing": 19, "missing_names": ["a"]}},
    ),
    ("optimizer_holds_trainable", {"holding": HEAD | {"left_out": False}}),
    ("updates_not_rounded", {"adam": {"rounding": LOST}}),
    ("updates_not_rounded", {"adam": {"rounding": LOST, "rates": WARM}}),
    ("gradients_start_empty", {"adam": {"left": 11, "emptied": 0}}),
    ("clip_before_step", {"adam": {"clips_before": 0, "clips_after": 11, "clips_after_acted": 3}}),
    ("clip_before_step", {"adam": {"clips_between": 36}}),
    ("schedule_once_per_update", {"schedules": [OFTEN]}),
    ("schedule_length", {"schedules": [ONCE | {"length": 48}], "planned_updates": 12}),
    ("stays_in_training_mode", {"modes": [True, True, False, False], "noisy_modules": 3}),
]


@pytest.mark.parametrize(("rule", "facts"), BROKEN)
def test_a_broken_rule_says_so(rule: str, facts: dict[str, Any]) -> None:
    assert answered(rule, **facts).status == "broken"


IN_DOUBT: list[tuple[str, dict[str, Any], str]] = [
    ("optimizer_holds_trainable", {"holding": HEAD}, "only a head is trained"),
    ("updates_not_rounded", {"adam": {"rounding": LOST | {"lost": 90}}}, "only norms are lost"),
    ("gradients_start_empty", {"adam": {"left": 6, "emptied": 5}}, "only some updates"),
    ("clip_before_step", {"adam": {"clips_before": 0, "clips_after": 11}}, "a norm is measured"),
    ("schedule_once_per_update", {"schedules": [OFTEN | {"length": 480}]}, "counts micro-batches"),
    (
        "schedule_once_per_update",
        {"schedules": [OFTEN | {"class": "CosineAnnealingLR"}]},
        "a schedule that begins again",
    ),
    (
        "schedule_length",
        {"schedules": [ONCE | {"length": 48}], "loader_length": 24},
        "or more epochs",
    ),
    (
        "stays_in_training_mode",
        {"modes": [True, False, True, True], "noisy_modules": 3},
        "in turn",
    ),
    (
        "only_the_optimizer_writes",
        {"adam": {"written_before": [5, 9], "written": "a"}},
        "averaged weights may be wanted",
    ),
]


@pytest.mark.parametrize(("rule", "facts", "why"), IN_DOUBT)
def test_what_may_be_a_choice_is_a_note(rule: str, facts: dict[str, Any], why: str) -> None:
    found = answered(rule, **facts)
    assert (found.status, bool(found.doubt)) == ("note", True), why


HEALTHY: list[tuple[str, dict[str, Any], str]] = [
    ("optimizer_holds_trainable", {}, "holds"),
    (
        "updates_not_rounded",
        {"adam": {"rounding": LOST, "rates": [1e-6] * 8 + [1e-5] * 4}},
        "not asked",
    ),
    ("updates_not_rounded", {"adam": {"rounding": LOST | {"still": 0, "lost": 90}}}, "holds"),
    ("gradients_start_empty", {}, "holds"),
    ("clip_before_step", {}, "holds"),
    ("clip_before_step", {"adam": {"clips_between": 1}}, "holds"),
    ("schedule_once_per_update", {"schedules": [ONCE]}, "holds"),
    ("schedule_length", {"schedules": [ONCE], "planned_updates": 12}, "holds"),
    ("stays_in_training_mode", {"modes": [True] * 4, "noisy_modules": 3}, "holds"),
    ("only_the_optimizer_writes", {}, "holds"),
    # Healthy oddities.
    ("optimizer_holds_trainable", {"holding": HOLDING | {"trainable_held": 0}}, "not asked"),
    (
        "updates_not_rounded",
        {"adam": {"rounding": LOST, "rates": [1e-7, 1e-5]}},
        "not asked",  # a warm-up
    ),
    ("updates_not_rounded", {}, "not asked"),  # float32
    ("gradients_start_empty", {"adam": {"left": 11, "closure": True}}, "not asked"),
    ("clip_before_step", {"adam": {"clips_before": 0}}, "not asked"),
    ("schedule_once_per_update", {"schedules": [ONCE | {"steps": [2] * 11}]}, "not asked"),
    ("schedule_length", {"schedules": [ONCE | {"length": 30}], "loader_length": 24}, "not asked"),
    ("stays_in_training_mode", {"modes": [False] * 4, "noisy_modules": 3}, "note"),
    ("stays_in_training_mode", {"modes": [False] * 4, "noisy_modules": 0}, "not asked"),
    ("stays_in_training_mode", {"modes": [True, False], "noisy_modules": 0}, "not asked"),
    (
        "only_the_optimizer_writes",
        {"adam": {"written_before": [*range(2, 13)]}},
        "not asked",  # a limit of weights
    ),
]


@pytest.mark.parametrize(("rule", "facts", "status"), HEALTHY)
def test_a_healthy_look_is_never_broken(rule: str, facts: dict[str, Any], status: str) -> None:
    assert answered(rule, **facts).status == status


@pytest.mark.parametrize("rule", sorted({rule for rule, *_ in HEALTHY}))
def test_a_look_without_these_facts_is_not_asked(rule: str) -> None:
    whole = example()
    whole.exact.pop("facts", None)
    assert next(one for one in RULES if one.id == rule).judge(whole).status == "not asked"


def test_evaluation_mode_from_the_start_is_lost_only_if_the_baseline_trained_without() -> None:
    def made(run: str, *modes: bool) -> RunRecord:
        whole = example().model_copy(update={"run_id": run})
        answered("stays_in_training_mode", record=whole, modes=[*modes], noisy_modules=3)
        return whole

    trains, evaluates = made("trains", True, True), made("evaluates", False, False)
    compared = compare_to_baseline(evaluates, trains, gates=())
    check = compared.check("stays_in_training_mode")
    assert (compared.verdict, check.status) == ("regression", "fail")
    assert check.message in compared.first_line
    assert check.message.startswith("the model trains in evaluation mode from the start: dropout")
    found = {check.name: check for check in rule_checks([made("again", False, False)], [evaluates])}
    assert found["stays_in_training_mode"].status == "warn"


def test_gradients_that_never_arrive_are_broken_only_if_no_parameter_changed() -> None:
    whole = example()
    assert answered("optimizer_holds_trainable", adam={"with_gradient": 0}).status == "note"
    first = whole.exact["model"]["parameters_sha256"]
    whole.exact["frozen"] = {"final_parameters_sha256": first}
    found = answered("optimizer_holds_trainable", adam={"with_gradient": 0}, record=whole)
    assert found.status == "broken"


def test_a_loop_that_ended_by_itself_says_how_many_updates_it_made() -> None:
    whole = example()
    whole.config |= {"trainer": "torch loop", "max_steps": None, "exact": False}
    whole.launches = [Launch(index=0, status="completed", steps=12, look_steps=12)]
    long: dict[str, Any] = {"schedules": [ONCE | {"length": 48}], "loader_length": 24}
    assert answered("schedule_length", record=whole, **long).status == "broken"
    whole.config["max_steps"] = 12
    assert answered("schedule_length", record=whole, **long).status == "note"


def test_lost_updates_explain_tensors_that_did_not_change() -> None:
    whole = example()
    whole.exact["first_update"]["tensors_unchanged"] = ["norm.weight"]
    assert answered("trainable_changed", record=whole).status == "broken"
    whole.exact["model"]["dtypes"] = {"torch.bfloat16": 21}
    found = answered("trainable_changed", record=whole)
    assert found.status == "note"
    assert "half precision" in found.doubt


def test_a_group_that_rests_and_a_loss_at_its_minimum_are_not_broken() -> None:
    whole = example()
    whole.exact["first_update"]["tensors_unchanged"] = ["norm.weight"]
    resting = HOLDING | {"resting_names": ["norm.weight"]}
    assert answered("trainable_changed", record=whole, holding=resting).status == "holds"
    whole.exact["trajectory"] |= {"losses": [0.0] * 12, "grad_norms": [0.0] * 12}
    assert answered("trainable_changed", record=whole).status == "note"
    whole.exact["trajectory"]["losses"] = [0.0, 1e-8]
    assert answered("trainable_changed", record=whole).status == "broken"


def test_optimizers_that_take_turns_change_their_own_tensors_only() -> None:
    whole = example()
    whole.exact["first_update"]["tensors_unchanged"] = ["norm.weight"]
    found = answered("trainable_changed", record=whole, optimizers=[ADAM, ADAM])
    assert found.status == "note"


@pytest.mark.parametrize(
    ("unheld", "statuses"),
    [
        ([], ("holds", "broken")),
        (["b"], ("broken", "broken")),
        (["a", "b"], ("broken", "holds")),
    ],
)
def test_a_tensor_that_no_optimizer_holds_is_one_finding(
    unheld: list[str], statuses: tuple[str, str]
) -> None:
    update = {"tensors_changed": 20, "tensors_unchanged": ["a", "b"]}
    whole = altered(example(), "exact", "first_update", to=update)
    holding = HOLDING | {"missing": len(unheld), "missing_names": unheld}
    names = ("optimizer_holds_trainable", "trainable_changed")
    found = [answered(name, record=whole, holding=holding) for name in names]
    assert tuple(one.status for one in found) == statuses
    assert not found[0].items & found[1].items


def test_nothing_trainable_and_no_gradient_are_one_finding_each() -> None:
    names = ("optimizer_holds_trainable", "trainable_changed")
    whole = altered(example(), "exact", "model", to={"trainable_parameters": 0})
    holding = HOLDING | {"tensors": 0, "trainable": 0, "trainable_held": 0}
    found = [answered(name, record=whole, holding=holding).status for name in names]
    assert found == ["not asked", "broken"]
    whole = altered(example(), "exact", "first_update", to={"tensors_unchanged": ["a", "b"]})
    found = [answered(name, record=whole, adam={"with_gradient": 0}).status for name in names]
    assert found == ["note", "not asked"]
