"""Invariants of the first update: changed parameters, frozen parameters, learning rates."""

from __future__ import annotations

from collections.abc import Sequence

from canary.compare.exact.inputs_stages import is_rollout
from canary.compare.invariants.parts import Invariant, argument, result, skip, whole_number
from canary.record.types import RunRecord

WARM_UPS = ("warmup_steps", "warmup_ratio")
"""Trainer arguments: warm-up steps, or their share of all steps."""
ZERO_GRADIENT_AT_START = ("lora_A", "lora_embedding_A")
"""LoRA starts with B = 0, so A has no gradient in the first step."""


def trainable_changed(record: RunRecord) -> Invariant:
    """The first update changes every trainable tensor."""
    name = "trainable_changed"
    update = record.exact.get("first_update")
    rates = record.exact.get("trajectory", {}).get("learning_rates", [])
    if not update or not rates:
        return skip(name, "the first update was not recorded")
    if not rates[0] or rates[0] <= 0:
        return skip(name, "the learning rate of step 1 is 0 (warm-up)")
    micro = record.exact["batches"][0] if record.exact.get("batches") else []
    if is_rollout(record) and micro and not any(any(m.get("advantages", [1])) for m in micro):
        return skip(name, "every advantage of step 1 is 0")
    still = [
        tensor
        for tensor in update.get("tensors_unchanged", [])
        if not any(part in tensor for part in ZERO_GRADIENT_AT_START)
    ]
    words = f"{update.get('tensors_changed')} trainable tensors changed in step 1"
    if still:
        words += f", {len(still)} did not ({still[0]}{', ...' if len(still) > 1 else ''})"
    unused = set(record.exact.get("first_gradient", {}).get("tensors_without_gradient", []))
    return result(
        name,
        bool(still),
        words,
        float(len(still)),
        update.get("tensors_changed"),
        items=still,
        doubt="they get no gradient: are they unused by the loss?" if unused >= set(still) else "",
    )


def frozen_unchanged(record: RunRecord) -> Invariant:
    """Frozen parameters and the reference model never change."""
    name = "frozen_unchanged"
    frozen = record.exact.get("frozen")
    if not frozen:
        return skip(name, "frozen parameters were not recorded")
    if argument(record, "sync_ref_model", False):
        return skip(name, "sync_ref_model updates the reference model on purpose")
    moved = list(frozen.get("changed", []))
    if frozen.get("reference_changed"):
        moved.append("the reference model")
    words = f"{frozen.get('tensors', 0)} frozen tensors and the reference model are unchanged"
    if moved:
        words = f"changed although frozen: {', '.join(moved[:3])}"
    return result(name, bool(moved), words, float(len(moved)), items=moved)


def learning_rate_positive(record: RunRecord) -> Invariant:
    """The learning rate is positive, except in the first steps of a warm-up and the last step."""
    name = "learning_rate_positive"
    recorded = record.exact.get("trajectory", {}).get("learning_rates", [])
    if all(rate is None for rate in recorded):
        return skip(name, "learning rates were not recorded")
    rates = [rate or 0.0 for rate in recorded]
    last = whole_number(record, "max_steps")
    first = next((place for place, rate in enumerate(rates) if rate > 0), len(rates))
    warm_up = _warms_up(record, rates[first:])
    zero = [
        step
        for step, rate in enumerate(rates, start=1)
        if not rate > 0 and not (warm_up and step <= first) and step != last
    ]
    doubt = "only the first steps: is this a warm-up?" if zero and zero[-1] <= first else ""
    words = f"{len(zero)} step{'' if len(zero) == 1 else 's'} with learning rate 0"
    return result(
        name,
        bool(zero),
        words,
        float(len(zero)),
        items=(f"step {step}" for step in zero),
        doubt=doubt if first < len(rates) else "",
    )


def _warms_up(record: RunRecord, rates: Sequence[float]) -> bool:
    """Whether the config sets a warm-up, or the rates rise after the zeros at the start."""
    settings = (record.config.get("warmup_steps"), *(argument(record, key, 0) for key in WARM_UPS))
    configured = any(isinstance(value, int | float) and value > 0 for value in settings)
    return bool(rates) and (configured or (len(rates) > 1 and rates[1] > rates[0]))
