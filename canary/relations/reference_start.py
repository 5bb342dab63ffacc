"""The reference model."""

from __future__ import annotations

from collections.abc import Sequence

from canary.relations.relation import (
    CannotAsk,
    Look,
    Outcome,
    Reference,
    Relation,
    broken,
    outcome,
)
from canary.relations.trained import CONSTANT, TrainedRow, TrainedUpdate, is_called, prefers

RELATION = Relation(
    "reference_start",
    "start and end",
    "the reference equals the policy at the start, is not random, and is not the policy itself",
    "the reference is another model, has dropout, or is the policy itself: then it moves with it",
    "https://arxiv.org/abs/2305.18290",
)
LEAST_UPDATES = 3
"""An update says more than the one before only if the policy has moved."""
LEAST_MOVED = 1e-3
"""Of a log-probability: a policy that moved by less equals each reference."""
ONLINE = ("ppo", "grpo", "rloo", "reinforce")
"""Parts of names: there the policy's own log-probabilities are the old ones of a ratio."""


def ask(look: Look) -> Outcome:
    """Ask the references about the policy's first micro-batch."""
    first = next(iter(look.trained), None)
    prefers_rows = first is not None and prefers(first)
    others = {id(one) for one, _ in look.references}
    found = [one for one in look.reference_calls if prefers_rows or id(one.module) in others]
    if not found:
        raise CannotAsk("no reference model was seen (same shapes, called without gradients)")
    for one in found:
        if (shared := _shared(look, one)) is not None:
            return shared
    if not prefers_rows and getattr(look.trainer, "ref_model", None) is None:
        raise CannotAsk("the other model may be a teacher: the loss lowers no row")
    answers = [_repeats(look, one) for one in found if one.training and prefers_rows]
    answers += [_starts_as_policy(look, one) for one in found]
    return next((one for one in answers if one["status"] == "broken"), answers[-1])


def _shared(look: Look, reference: Reference) -> Outcome | None:
    """Return that a reference has trainable tensors of the policy; None if it has none."""
    if reference.is_policy:
        return None
    own = {value.data_ptr() for _, value in look.named_parameters() if value.requires_grad}
    named = reference.module.named_parameters()
    found = [name for name, value in named if value.data_ptr() in own]
    if not found:
        return None
    return broken(RELATION, f"reference and policy share {len(found)} trainable tensors", found[0])


def _starts_as_policy(look: Look, reference: Reference) -> Outcome:
    """Ask whether a reference begins as the policy."""
    call = look.call
    before, after = look.scores(call), reference.scores(call)
    counts = look.counted(call, before) if call.scores_tokens and call.ids is not None else None
    found = look.compared(RELATION.id, call, before, after, counts)
    if found["status"] == "broken":
        found["message"] = f"{reference.what} differs from the policy: {found['message']}"
    return found


def _repeats(look: Look, reference: Reference) -> Outcome:
    """Ask a reference in training mode twice."""
    call = look.call
    before, after = (reference.scores(call, seed) for seed in (0, 1))
    found = look.compared(RELATION.id, call, before, after, look.counted(call, before))
    if found["status"] == "broken":
        found["message"] = (
            f"{reference.what} is in training mode and random: asked twice, {found['message']}"
        )
    return found


def ask_at_end(look: Look) -> Outcome:
    """Ask whether the policy is its own reference. A loss of margins is then the same in each
    update, whatever was learned."""
    updates = look.trained
    failed = next((one.failed for one in updates if one.failed), "")
    if failed:
        return outcome(RELATION.id, "undecided", failed)
    later = [row for one in updates[1:] for row in one.rows]
    if len(updates) < LEAST_UPDATES or not all(one.rows for one in updates):
        raise CannotAsk("too few updates were seen")
    if not all(row.itself and not row.elsewhere for row in later):
        raise CannotAsk("the policy is not called as its own reference")
    if look.sampling.sampled or look.sampling.expected or is_called(updates, *ONLINE):
        raise CannotAsk("the policy's own log-probabilities may be those of a ratio")
    weight = _weight_of_pairs(updates)
    if weight is None or not _same([one.losses for one in updates]) or not _moved(look):
        raise CannotAsk("the loss moves as the policy does")
    return broken(
        RELATION,
        f"the policy itself is the reference: in updates 2 to {updates[-1].number}, both say the "
        f"same of {len(later)} rows, and the loss of {updates[0].losses[0]:.6g} does not move",
        "update 2",
        (weight,),
    )


def _weight_of_pairs(updates: Sequence[TrainedUpdate]) -> float | None:
    """Return the weight of each row, if all weigh the same and half of them are lowered."""
    rows = [row for one in updates for row in one.rows]
    half = all(2 * sum(row.mean > 0 for row in one.rows) == len(one.rows) for one in updates)
    if not half or not all(row.is_constant and row.mean for row in rows):
        return None
    for size in (_mean, _total):
        values = [size(row) for row in rows]
        if max(values) - min(values) <= CONSTANT * max(values):
            return values[0]
    return None


def _mean(row: TrainedRow) -> float:
    return abs(row.mean)


def _total(row: TrainedRow) -> float:
    return abs(row.total)


def _same(losses: Sequence[tuple[float, ...]]) -> bool:
    """Whether each backward pass had the same loss, which is not 0 as that of advantages is."""
    found = [one for some in losses for one in some]
    if not all(losses) or not found:
        return False
    largest = max(abs(one) for one in found)
    return max(found) - min(found) <= 1e-5 * largest and largest > 1e-6


def _moved(look: Look) -> bool:
    """Whether the policy has moved since its first call."""
    call = look.call
    if call.log_probs is None:
        return False
    after = look.scores(call).cpu()
    before = call.log_probs[:, call.log_probs.shape[1] - after.shape[1] :]
    return float((after - before).abs().nan_to_num().max()) > LEAST_MOVED
