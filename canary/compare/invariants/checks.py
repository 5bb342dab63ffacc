"""Checks of what holds in every healthy run: one function per invariant.

Each function judges one record, or skips it with a reason if its precondition does not hold.
Then `sides` compares the result with the baseline's.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from canary.compare.exact.inputs_stages import is_rollout
from canary.compare.exact.lane import newest_looked
from canary.compare.exact.tolerances import arithmetic_of
from canary.compare.invariants.parts import (
    FIRST_LOSSES,
    Invariant,
    argument,
    arguments,
    micro_batches,
    not_for,
    of_the_side,
    overridden_loss,
    result,
    skip,
    special,
    starts_at_reference,
    trainer_of,
    whole_number,
)
from canary.compare.invariants.rollout import (
    advantages_scaled,
    advantages_sum_to_zero,
    reward_varies,
    rewards_add_up,
    same_tokens_sampled_and_trained,
    starts_at_ratio_one,
)
from canary.compare.report import Check
from canary.config.trainers import TRAINERS
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
    nothing = record.exact.get("model", {}).get("trainable_parameters") == 0
    words = f"{update.get('tensors_changed')} trainable tensors changed in step 1"
    if nothing:
        words = "no parameter is trainable"
    elif still:
        every = (update.get("tensors_changed") or 0) + len(still)
        words = f"{len(still)} of {every} trainable tensors did not change in step 1"
        words += f" ({still[0]}{', ...' if len(still) > 1 else ''})"
    unused = set(record.exact.get("first_gradient", {}).get("tensors_without_gradient", []))
    return result(
        name,
        bool(still) or nothing,
        words,
        float(len(still)),
        update.get("tensors_changed"),
        items=still,
        doubt="they get no gradient: are they unused by the loss?"
        if unused >= set(still) and not nothing
        else "",
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


FIRST_LOSS_TOLERANCE = {"float32": 1e-5, "bfloat16": 1e-2, "float16": 1e-3}


def look_finite(record: RunRecord) -> Invariant:
    """Raw losses and gradient norms of the look are finite."""
    trajectory = record.exact.get("trajectory", {})
    bad = [
        f"{what} of step {step}"
        for what, series in (
            ("loss", trajectory.get("losses", [])),
            ("gradient norm", trajectory.get("grad_norms", [])),
        )
        for step, value in enumerate(series, start=1)
        if value is not None and not math.isfinite(value)
    ]
    words = f"{len(bad)} losses or gradient norms are not finite"
    return result("raw_loss_finite", bool(bad), words, float(len(bad)), items=bad)


def loss_not_negative(record: RunRecord) -> Invariant:
    """A negative log-likelihood is never below zero, nor is a loss of such terms."""
    name = "loss_not_negative"
    if not trainer_of(record).never_negative(arguments(record)):
        return skip(name, "this loss can be negative")
    losses = [*record.exact.get("trajectory", {}).get("losses", []), *record.stability.loss_values]
    negative = [v for v in losses if v is not None and v < -_rounding(record)]
    return result(
        name,
        bool(negative),
        f"negative losses: {len(negative)}, but this loss cannot be negative"
        if negative
        else "no loss is negative",
        float(len(negative)),
        items=("loss",) if negative else (),
        doubt=overridden_loss(record),
    )


def _rounding(record: RunRecord) -> float:
    """Return how far rounding alone may move a loss."""
    return FIRST_LOSS_TOLERANCE.get(arithmetic_of(record), 1e-5)


def _first_loss(name: str, record: RunRecord) -> Invariant:
    """The first loss has its known value if policy and reference model are equal."""
    row = TRAINERS[FIRST_LOSSES[name]]
    if trainer_of(record) is not row:
        return not_for(name, row.title)
    expected = row.first_loss
    assert expected is not None
    other = expected.unless(arguments(record))
    if other:
        return skip(name, other)
    if not starts_at_reference(record):
        return skip(name, "policy and reference model differ at the start")
    if record.config.get("lora_dropout"):
        return skip(name, "dropout makes policy and reference model differ")
    loss = record.exact.get("first_loss", {}).get("loss")
    if loss is None:
        return skip(name, "the first loss was not recorded")
    off = loss - expected.value
    broken = not abs(off) <= _rounding(record)
    words = f"first loss {loss:.6f}, {expected.words}"
    if broken:
        words += f": policy and reference model differ before training{expected.why}"
    return result(name, broken, words, off, loss, doubt=overridden_loss(record))


GUESSED = "the tokenizer is unknown, and EOS comes from the model's config"


def labels_contain_eos(record: RunRecord) -> Invariant:
    """Without EOS in its labels, the model never learns to stop."""
    name = "labels_contain_eos"
    micro = micro_batches(record)
    if is_rollout(record):
        return skip(name, "completions may be cut before EOS")
    if trainer_of(record).classifies:
        return skip(name, "a reward model scores sequences and has no labels")
    if not any("label_tokens" in one for one in micro):
        return skip(name, "labels were not recorded")
    guessed = not record.exact.get("data", {}).get("tokenizer")
    if "eos_labels" not in micro[0] or (special(record, "eos") is None and not guessed):
        return skip(name, "no EOS token is known")
    limit = whole_number(record, "max_length")
    widths = [max((s[-1] for s in m.get("shapes", {}).values() if s), default=0) for m in micro]
    if limit and min(widths) >= limit:
        return skip(name, "every batch is cut at max_length")
    count = sum(m.get("eos_labels", 0) for m in micro)
    labels = sum(m.get("label_tokens", 0) for m in micro)
    words = f"{count} EOS among {labels} label tokens"
    if count == 0 and not guessed:
        words += ": the model will never learn to stop"
    doubt = GUESSED if guessed else _other_text(record)
    made = result(name, count == 0, words, float(count == 0), count, doubt=doubt)
    return replace(made, guessed=guessed)


def _other_text(record: RunRecord) -> str:
    """Return a hint that the labels are not answers with an end; empty without one."""
    if special(record, "mask") is not None:
        return "the tokenizer has a mask token: is this a masked language model?"
    seen = [micro.get("eos_inputs") for micro in micro_batches(record)]
    if seen and not any(count is None or count for count in seen):
        return "no input has EOS either: is this plain text without EOS?"
    return ""


def at_most_one_bos(record: RunRecord) -> Invariant:
    """A second BOS comes from tokenizing a text to which a chat template already added BOS."""
    name = "at_most_one_bos"
    bos = special(record, "bos")
    micro = [m for m in micro_batches(record) if "bos_most_in_a_sequence" in m]
    if bos is None or not micro:
        return skip(name, "no BOS token, or it was not counted")
    if bos in (special(record, "eos"), special(record, "pad")):
        return skip(name, "BOS is also EOS or pad")
    if argument(record, "packing", False) or argument(record, "padding_free", False):
        return skip(name, "each packed sequence has its BOS")
    most = max(m["bos_most_in_a_sequence"] for m in micro)
    packed = not any(m.get("pad_tokens", 1) for m in micro)
    return result(
        name,
        most > 1,
        f"up to {most} BOS per sequence",
        float(most - 1),
        most,
        items=("BOS of packed rows",) if packed and most > 1 else (),
        doubt="no row is padded: is this packed text?" if packed else "",
    )


def ranks_agree(record: RunRecord) -> Invariant:
    """Ranks that each hold the whole model start and end with equal parameters."""
    name = "ranks_agree"
    ranks = record.exact.get("ranks")
    if not ranks:
        return not_for(name, "several ranks")
    if ranks.get("sharded"):
        return skip(name, "each rank holds only a part of the parameters")
    for moment, hashes in (
        ("final", ranks.get("final_parameters_sha256", {})),
        ("initial", ranks.get("initial_parameters_sha256", {})),
    ):
        others = [rank for rank, found in hashes.items() if found != next(iter(hashes.values()))]
        if others:
            words = f"{moment} parameters of rank {', '.join(others)} differ from rank 0"
            return result(name, True, words, float(len(others)))
    return result(name, False, "all ranks hold the same parameters", 0.0)


INVARIANTS: tuple[Callable[[RunRecord], Invariant], ...] = (
    look_finite,
    loss_not_negative,
    *(functools.partial(_first_loss, name) for name in FIRST_LOSSES),
    starts_at_ratio_one,
    advantages_sum_to_zero,
    advantages_scaled,
    reward_varies,
    rewards_add_up,
    labels_contain_eos,
    at_most_one_bos,
    trainable_changed,
    frozen_unchanged,
    learning_rate_positive,
    same_tokens_sampled_and_trained,
    ranks_agree,
)


def invariant_checks(
    current: Sequence[RunRecord], baseline: Sequence[RunRecord] = ()
) -> Iterator[Check]:
    """Yield the check of every invariant, over all current records that have a look."""
    looked = [record for record in current if record.exact]
    before = newest_looked(baseline) if baseline else None
    for invariant in INVARIANTS if looked else ():
        known = invariant(before) if before is not None and before.exact else None
        yield of_the_side([invariant(record) for record in looked], known)
