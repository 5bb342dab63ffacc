"""Weights of the engine and of the trainer."""

from __future__ import annotations

from canary.relations.relation import CannotAsk, Look, Outcome, Relation, broken, holds, outcome
from canary.relations.sampling import Sampling, Weights

RELATION = Relation(
    "sampler_weights",
    "sampling",
    "the engine that samples holds the trainer's weights, before each update",
    "the engine is not updated, updated too early, or only in part",
    "https://github.com/huggingface/trl/issues/5312",
    moment="last",
)


def ask(look: Look) -> Outcome:
    """Compare the hashes of all tensors that both have, for each update."""
    found: Sampling = look.sampling
    if not found.weights:
        if found.failed:
            return outcome(RELATION.id, "undecided", found.failed)
        if found.expected and not found.rounds:
            words = "no engine was seen; see canary.engine_weights"
            return outcome(RELATION.id, "undecided", words)
        raise CannotAsk("no engine beside the trained model was seen; see canary.engine_weights")
    parted = next((one for one in found.weights if one.differing), None)
    if parted is not None:
        return broken(RELATION, _apart(parted), f"update {parted.update}", parted.norms or ())
    most = max(one.tensors for one in found.weights)
    dtype = next((one.dtype for one in found.weights if one.dtype), "")
    rounded = f" after rounding to {dtype}, the engine's dtype" if dtype else ""
    updates = len({one.update for one in found.weights})
    return holds(RELATION, f"{most} tensors are equal{rounded}, before {updates} updates")


def _apart(one: Weights) -> str:
    words = f"{one.differing} of {one.tensors} tensors differ in {one.source}, first {one.first}"
    if one.stale_by is not None:
        plural = "" if one.stale_by == 1 else "s"
        return f"{words}: the engine is {one.stale_by} update{plural} behind"
    if one.norms is not None:
        engine, trainer = one.norms
        words += f", whose norm is {engine:.6g} there and {trainer:.6g} in the trainer"
    return words
