"""How far rounding moves what a model says: measured, with parameters that are off by one rounding.

This is the perturbation of TTrace (arXiv 2506.09280): each parameter is multiplied by 1 + epsilon
or 1 - epsilon, with epsilon of the arithmetic that the model computes in. In half precision, this
moves far more than two ways to compute differ: there the same model in float32 tells the error.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from torch import nn

from canary.training.asking.calls import Call, scored
from canary.training.random_states import kept_random

DRAWS = 3
FACTOR = 8.0
"""Two kernels round more often than one perturbed parameter does."""
FLOOR = 16
"""Epsilons of the largest value: it is rounded too."""
HALF = 1e-6
"""Half precision has a larger epsilon."""
FACTOR_OF_ERROR = 4.0
"""Both sides have errors, and the measured one is the largest of few."""


@contextlib.contextmanager
def replaced(model: nn.Module, made: Callable[[torch.Tensor], torch.Tensor]) -> Iterator[None]:
    """Replace what parameters and buffers of floats hold within a block."""
    held = (*model.parameters(), *model.buffers())
    kept = [(one, one.data) for one in held if one.dtype.is_floating_point]
    try:
        for value, was in kept:
            value.data = made(was)
        yield
    finally:
        for value, was in kept:
            value.data = was


def perturbed(model: nn.Module, eps: float, seed: int) -> contextlib.AbstractContextManager[None]:
    """Put each value off by one rounding, up or down at random, within a block. Integers of a
    quantised model are exact."""
    generator = torch.Generator().manual_seed(seed)

    def moved(value: torch.Tensor) -> torch.Tensor:
        signs = torch.randint(0, 2, value.shape, generator=generator) * 2 - 1
        return (value.double() * (1 + eps * signs.to(value.device))).to(value.dtype)

    return replaced(model, moved)


def rounding_of(call: Call) -> float:
    """Return the tolerance of a call's scores."""
    before, moved = scored(call), 0.0
    kinds = {*(value.dtype for value in call.module.parameters()), call.autocast or torch.float32}
    eps = max(float(torch.finfo(kind).eps) for kind in kinds if kind.is_floating_point)
    errors = [_error(call, before)] if eps > HALF else []
    for seed in range(DRAWS):
        with perturbed(call.module, eps, seed):
            again = scored(call)
            errors += [_error(call, again)] if errors else []
        moved = max(moved, _largest(again - before))
    largest = _largest(before)
    known = [one for one in errors if one is not None]
    if known and len(known) == len(errors):
        return max(FACTOR_OF_ERROR * max(known), eps * largest)
    return max(FACTOR * moved, FLOOR * eps * largest)


def _largest(values: torch.Tensor) -> float:
    return float(values.abs().nan_to_num(posinf=0.0).max())


def _error(call: Call, said: torch.Tensor) -> float | None:
    """Return how far what a call said is from the same in float32; None if that is not possible: a
    kernel may refuse float32, or memory may lack."""
    try:
        with replaced(call.module, torch.Tensor.float):
            return _largest(said - scored(replace(call, autocast=None)))
    except Exception:  # noqa: BLE001 - a user's model may refuse anything
        return None


@contextlib.contextmanager
def undisturbed(model: nn.Module) -> Iterator[None]:
    """Run a block in evaluation mode; restore modes, buffers and random states after it."""
    modes = [(one, one.training) for one in model.modules()]
    buffers = [(one, one.detach().clone()) for one in model.buffers()]
    model.eval()
    try:
        with kept_random():
            yield
    finally:
        for one, training in modes:
            one.training = training
        with torch.no_grad():
            for buffer, kept in buffers:
                buffer.copy_(kept)
