"""The loss of a preference batch whose chosen and rejected rows are swapped."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn

from canary.training.relations.calls import KeptCall, bound, said_of, shape_of, weigh

HALVES = ("DPOTrainer", "RewardTrainer")
"""Trainers of trl whose batches hold chosen rows first, then the rejected ones."""


def swapped_inputs(trainer: Any, inputs: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a batch with chosen and rejected rows swapped; None if its layout is not known."""
    named = {name: name.replace("chosen", "rejected") for name in inputs if "chosen" in name}
    pairs = {**named, **{other: name for name, other in named.items()}}
    found = {pairs.get(name, name): value for name, value in inputs.items()}
    if set(found) != set(inputs):
        return None
    ids: Any = inputs.get("input_ids")
    if not torch.is_tensor(ids):
        return found if pairs else None
    kinds = {one.__name__ for one in type(trainer).__mro__ if one.__module__.startswith("trl.")}
    if not kinds & set(HALVES) or len(ids) % 2:
        return None
    half = len(ids) // 2
    return {
        name: torch.cat([value[half:], value[:half]])
        if torch.is_tensor(value) and value.dim() and len(value) == len(ids)
        else value
        for name, value in found.items()
    }


def calls_of_loss(trainer: Any, model: nn.Module, inputs: dict[str, Any]) -> list[KeptCall]:
    """Compute a loss and its gradient; return the model's calls with their weights."""
    calls: list[tuple[KeptCall, torch.Tensor]] = []
    inside = 0

    def enters(*_: Any) -> None:
        nonlocal inside
        inside += 1

    def leaves(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        nonlocal inside
        inside -= 1
        known = said_of(output)
        if inside or known is None or not torch.is_grad_enabled() or not known[1].requires_grad:
            return
        says, said = known
        shape = shape_of(module, says, said)
        calls.append((KeptCall(module, bound(module, args, kwargs), shape, False, says), said))

    handles = [
        model.register_forward_pre_hook(enters),
        model.register_forward_hook(leaves, with_kwargs=True),
    ]
    try:
        with torch.enable_grad(), _unchanged(trainer):
            # Not through the instance, whose method is timed.
            found = type(trainer).compute_loss(trainer, model, dict(inputs))
            loss = found[0] if isinstance(found, tuple) else found
            said = [one for _, one in calls]
            gradients = torch.autograd.grad(loss, said, allow_unused=True) if said else ()
    finally:
        for handle in handles:
            handle.remove()
    for (call, logits), gradient in zip(calls, gradients, strict=True):
        if gradient is not None:
            weigh(call, logits.detach(), gradient)
    return [call for call, _ in calls if call.trained]


@contextlib.contextmanager
def _unchanged(trainer: Any) -> Iterator[None]:
    """Put back the metrics and counts that a trainer keeps of its losses."""
    kept = {
        name: copy.deepcopy(value)
        for name, value in vars(trainer).items()
        if "metrics" in name or isinstance(value, int | float)
    }
    try:
        yield
    finally:
        vars(trainer).update(kept)
