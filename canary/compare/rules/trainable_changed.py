"""What is trained changes."""

from __future__ import annotations

from collections.abc import Sequence

from canary.compare.exact.inputs_stages import is_rollout
from canary.compare.rules.facts import any_gradient, updates_of, warned
from canary.compare.rules.rule import Answer, Rule, answer, not_asked
from canary.record.exact import group_of
from canary.record.types import RunRecord

ZERO_GRADIENT_AT_START = ("lora_A", "lora_embedding_A")
"""LoRA starts with B = 0, so A has no gradient in the first step."""
CHECKPOINT_WITHOUT_GRADIENT = "None of the inputs have requires_grad=True"
"""Torch says so of a reentrant checkpoint, whose parameters then get no gradient."""
LOW = frozenset(("torch.bfloat16", "torch.float16"))
"""A small update may leave such a parameter as it is, also where a residual is kept elsewhere."""


def judge(record: RunRecord) -> Answer:
    """The first update changes every trainable tensor that an optimizer holds."""
    if record.exact.get("model", {}).get("trainable_parameters") == 0:
        return answer(True, "no parameter is trainable")
    update = record.exact.get("first_update")
    rates = record.exact.get("trajectory", {}).get("learning_rates", [])
    if not update or not rates:
        return not_asked("the first update was not recorded")
    if not rates[0] or rates[0] <= 0:
        return not_asked("the learning rate of step 1 is 0 (warm-up)")
    seen = updates_of(record) or {}
    holding = seen.get("holding", {})
    if "holding" in seen and not (holding.get("tensors") and any_gradient(seen)):
        return not_asked("no optimizer holds a tensor with a gradient")
    micro = record.exact["batches"][0] if record.exact.get("batches") else []
    if is_rollout(record) and micro and not any(any(m.get("advantages", [1])) for m in micro):
        return not_asked("every advantage of step 1 is 0")
    unheld = set(holding.get("missing_names", []))
    still = [
        tensor
        for tensor in update.get("tensors_unchanged", [])
        if not any(part in tensor for part in ZERO_GRADIENT_AT_START) and tensor not in unheld
    ]
    changed = update.get("tensors_changed") or 0
    if not still and not changed:
        return not_asked("no optimizer holds a tensor that did not change")
    if not still:
        words = f"{changed} trainable tensors changed in step 1"
        return answer(False, words, value=update.get("tensors_changed"))
    words = f"{len(still)} of {changed + len(still)} trainable tensors did not change in step 1"
    return answer(
        True,
        f"{words} ({still[0]}{', ...' if len(still) > 1 else ''})",
        size=len(still),
        value=update.get("tensors_changed"),
        items=still,
        place=still[0],
        doubt=_doubt(record, still),
    )


def _doubt(record: RunRecord, still: Sequence[str]) -> str:
    """Return what else may explain that tensors did not change; empty if nothing does."""
    gradient = record.exact.get("first_gradient", {})
    if set(gradient.get("tensors_without_gradient", [])) >= {*still}:
        if warned(record, CHECKPOINT_WITHOUT_GRADIENT):
            return ""
        return "they get no gradient: are they unused by the loss?"
    groups = gradient.get("groups", {})
    if any(groups.values()) and all(groups.get(group_of(name)) == 0 for name in still):
        return "their gradient is 0 in step 1: do they feed a tensor that starts at 0?"
    optimizers = (updates_of(record) or {}).get("optimizers", [])
    if sum(one.get("updates", 0) > 0 for one in optimizers) > 1:
        return "several optimizers make updates: do they take turns?"
    if LOW & set(record.exact.get("model", {}).get("dtypes", {})):
        return "some parameters are in half precision: may small updates round to nothing?"
    return ""


RULE = Rule(
    "trainable_changed",
    "trainable parameters change",
    "the learning rate of the first update is above 0",
    "make them trainable, and give them to the optimizer after that",
    "https://github.com/huggingface/peft/issues/2765",
    judge,
)
