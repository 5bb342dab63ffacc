"""How far rounding moves what a model says: measured, with parameters that are off by one rounding.

This is the perturbation of TTrace (arXiv 2506.09280): each parameter is multiplied by 1 + epsilon
or 1 - epsilon, with epsilon of the arithmetic that the model computes in. In half precision, this
moves far more than two ways to compute differ: there the same model in float32 tells the error.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import nn

from canary.training.relations.calls import KeptCall, scored

DRAWS = 3
FACTOR = 8.0
"""Two kernels round more often than one perturbed parameter does."""
FLOOR = 16
"""Epsilons of the largest value: it is rounded too."""
HALF = 1e-6
"""Half precision has a larger epsilon."""
LOW = (torch.bfloat16, torch.float16)
FACTOR_OF_ERROR = 4.0
"""Both sides have errors, and the measured one is the largest of few."""


def epsilon(model: nn.Module, autocast: torch.dtype | None = None) -> float:
    """Return the relative rounding of the arithmetic that a model computes in. `autocast`: that of
    the call."""
    kinds = {value.dtype for value in model.parameters() if value.dtype.is_floating_point}
    device = next(model.parameters()).device.type
    if torch.is_autocast_enabled(device):
        kinds.add(torch.get_autocast_dtype(device))
    if autocast is not None:
        kinds.add(autocast)
    return max((float(torch.finfo(kind).eps) for kind in kinds), default=1.2e-7)


@contextlib.contextmanager
def perturbed(model: nn.Module, eps: float, seed: int) -> Iterator[None]:
    """Put each parameter off by one rounding, and back after the block."""
    kept = [(value, value.detach().clone()) for value in _floats(model)]
    try:
        perturb(model, eps, seed)
        yield
    finally:
        with torch.no_grad():
            for value, was in kept:
                value.copy_(was)


def perturb(model: nn.Module, eps: float, seed: int) -> None:
    """Put each parameter off by one rounding, up or down at random."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for value in _floats(model):
            signs = torch.randint(0, 2, value.shape, generator=generator) * 2 - 1
            value.copy_((value.double() * (1 + eps * signs.to(value.device))).to(value.dtype))


def _floats(model: nn.Module) -> list[nn.Parameter]:
    """Return the parameters that round; integers of a quantised model are exact."""
    return [value for value in model.parameters() if value.dtype.is_floating_point]


def tolerance(moved: float, largest: float, eps: float) -> float:
    """Return how far a value may differ: the tolerance.

    Args:
        moved: how far perturbed parameters moved it at most.
        largest: the largest value.
        eps: relative rounding.
    """
    return max(FACTOR * moved, FLOOR * eps * largest)


def rounding_of(call: KeptCall, temperature: float = 1.0, *, weights: bool = True) -> float:
    """Return the tolerance of a call's scores.

    Args:
        call: the call.
        temperature: of its log-probabilities.
        weights: whether the other side's weights may be rounded in another way, as those of merged
            adapters are. If not, the tolerance of a model in half precision comes from its
            difference to the same model in float32.
    """
    before, moved = scored(call, temperature), 0.0
    eps = epsilon(call.module, call.autocast)
    errors = [_error(call, before, temperature)] if eps > HALF and not weights else []
    for seed in range(DRAWS):
        with perturbed(call.module, eps, seed):
            again = scored(call, temperature)
            errors += [_error(call, again, temperature)] if errors else []
        moved = max(moved, _largest(again - before))
    largest = _largest(before)
    known = [one for one in errors if one is not None]
    if known and len(known) == len(errors):
        return max(FACTOR_OF_ERROR * max(known), eps * largest)
    return tolerance(moved, largest, eps)


def _largest(values: torch.Tensor) -> float:
    return float(values.abs().nan_to_num(posinf=0.0).max())


def _error(call: KeptCall, said: torch.Tensor, temperature: float) -> float | None:
    """Return how far what a call said is from the same in float32; None if that is not possible: a
    kernel may refuse float32, or memory may lack."""
    try:
        with in_float32(call.module):
            exact = scored(replace(call, autocast=None), temperature)
    except Exception:  # noqa: BLE001 - a user's model may refuse anything
        return None
    return _largest(said - exact)


@contextlib.contextmanager
def in_float32(model: nn.Module) -> Iterator[None]:
    """Hold parameters and buffers of half precision in float32 within the block."""
    held = (value for value in (*model.parameters(), *model.buffers()) if value.dtype in LOW)
    kept = [(value, value.data) for value in held]
    try:
        for value, was in kept:
            value.data = was.float()
        yield
    finally:
        for value, was in kept:
            value.data = was
