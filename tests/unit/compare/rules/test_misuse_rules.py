"""Rules about the misuse of a library: broken, in doubt, and kept."""

from __future__ import annotations

from typing import Any

import pytest

from canary.compare.rules import RULES
from canary.compare.rules.rule import Answer
from tests.unit.comparing import altered, example

SIZES = (
    "Using a target size (torch.Size([{}])) that is different to the input size (torch.Size([{}]))."
)
LOAD = {"model": "Net", "given": 9, "name": "model.a", "wanted": "a"}
ADDED = {"first": 500, "frozen": True, "rows": 64, "rows_with": 60}
CLIPS = {"clips": 12, "empty": 0, "scaled": 0}
CHECKPOINT = "None of the inputs have requires_grad=True. Gradients will be None"


def answered(rule: str, **facts: Any) -> Answer:
    """What a rule says of a healthy run with these facts."""
    return next(one for one in RULES if one.id == rule).judge(
        altered(example(), "exact", "facts", to=facts)
    )


def warning(text: str) -> dict[str, Any]:
    return {"warned": [{"library": "torch", "text": text}]}


CASES: list[tuple[str, dict[str, Any], str]] = [
    ("clip_takes_effect", {"clips": CLIPS}, "holds"),
    ("clip_takes_effect", {"clips": CLIPS | {"empty": 12}}, "broken"),
    ("clip_takes_effect", {"clips": CLIPS | {"empty": 3}}, "holds"),
    ("clip_takes_effect", {"clips": CLIPS | {"scaled": 12}}, "broken"),
    ("clip_takes_effect", {}, "not asked"),
    ("own_target", {}, "not asked"),
    ("own_target", warning(SIZES.format(8, "8, 1")), "broken"),
    ("own_target", warning(SIZES.format("8, 1", "8, 5")), "note"),
    ("weights_loaded", {"loads": [LOAD]}, "broken"),
    ("weights_loaded", {}, "not asked"),
    ("closed_turns", {"texts": {"rows_read": 16, "rows_open": 0}}, "holds"),
    ("closed_turns", {"texts": {"rows_read": 16, "rows_open": 2}}, "note"),
    ("closed_turns", {"texts": {"rows_read": 16, "rows_open": 16}}, "broken"),
    ("closed_turns", {}, "not asked"),
    ("new_tokens_train", {"texts": {"new_tokens": ADDED}}, "broken"),
    ("new_tokens_train", {"texts": {"new_tokens": ADDED | {"frozen": False}}}, "holds"),
    ("new_tokens_train", {"texts": {"new_tokens": ADDED | {"rows_with": 0}}}, "not asked"),
]


@pytest.mark.parametrize(("rule", "facts", "status"), CASES)
def test_a_misuse_is_named_and_a_right_use_is_not(
    rule: str, facts: dict[str, Any], status: str
) -> None:
    assert answered(rule, **facts).status == status


@pytest.mark.parametrize(("found", "status"), [([], "holds"), ([[[8, 1], [8]]], "broken")])
def test_a_loss_over_all_pairs_is_broken(found: Any, status: str) -> None:
    whole = altered(example(), "exact", "work", "outer_losses", to=found)
    rule = next(one for one in RULES if one.id == "own_target")
    assert rule.judge(whole).status == status


@pytest.mark.parametrize(("found", "status"), [([], "holds"), (["nll_loss of x"], "broken")])
def test_a_loss_of_probabilities_is_broken(found: list[str], status: str) -> None:
    whole = altered(example(), "exact", "work", "losses_of_probabilities", to=found)
    rule = next(one for one in RULES if one.id == "loss_takes_logits")
    assert rule.judge(whole).status == status
    assert rule.judge(example()).status == "not asked"


def test_a_checkpoint_without_gradient_explains_tensors_that_get_none() -> None:
    whole = altered(example(), "exact", "first_update", to={"tensors_unchanged": ["a"]})
    whole.exact["first_gradient"]["tensors_without_gradient"] = ["a"]
    rule = next(one for one in RULES if one.id == "trainable_changed")
    assert rule.judge(whole).status == "note"
    assert rule.judge(altered(whole, "exact", "facts", to=warning(CHECKPOINT))).status == "broken"


@pytest.mark.parametrize(
    ("kind", "count", "status"),
    [("orpo", 0, "holds"), ("orpo", 9, "broken"), ("dpo", 9, "note")],
)
def test_prompts_among_the_labels_of_pairs(kind: str, count: int, status: str) -> None:
    whole = altered(example("dpo"), "config", "training_type", to=kind)
    micro = {"prompt_tokens": 9, "prompt_labels": count}
    rule = next(one for one in RULES if one.id == "pair_labels")
    assert rule.judge(whole).status == "not asked"
    assert rule.judge(altered(whole, "exact", "batches", to=[[micro]])).status == status
