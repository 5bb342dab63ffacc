"""Losses that pair each row with all targets: a difference of shapes (N, 1) and (N,) is N by N."""

from __future__ import annotations

import weakref
from typing import Any

import torch

ATEN = torch.ops.aten
DISTANCES = (ATEN.pow.Tensor_Scalar, ATEN.abs.default, ATEN.mul.Tensor)
WHOLE = (ATEN.mean.default, ATEN.sum.default)


class OuterLosses:
    """Follows such differences through a square or an absolute value into one number."""

    def __init__(self) -> None:
        self.found: list[list[list[int]]] = []
        """The shapes of each: rows with a gradient, then targets without one."""
        self._known: dict[int, tuple[weakref.ref[torch.Tensor], list[list[int]]]] = {}

    def saw(self, func: Any, args: tuple[Any, ...], made: Any) -> None:
        """Look at one operator's arguments and result."""
        if func is ATEN.sub.Tensor:
            shapes = _outer(*args[:2])
            if shapes is not None:
                self._known[id(made)] = (weakref.ref(made), shapes)
        elif self._known and (func in DISTANCES or func in WHOLE):
            known = self._known.get(id(args[0]))
            source = None if known is None else known[0]()
            if known is None or source is None or source is not args[0]:
                return
            if func in WHOLE:
                self.found.append(known[1])
            elif made.shape == source.shape:
                self._known[id(made)] = (weakref.ref(made), known[1])


def _outer(one: Any, other: Any) -> list[list[int]] | None:
    if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor):
        return None
    pair: list[torch.Tensor] = [one, other]
    if one.requires_grad == other.requires_grad:
        return None
    flat, tall = sorted(pair, key=torch.Tensor.dim)
    count = tall.shape[0] if tall.dim() == 2 else 0
    if count < 2 or tall.shape[1] != 1 or tuple(flat.shape) != (count,):
        return None
    rows, targets = (one, other) if one.requires_grad else (other, one)
    return [list(rows.shape), list(targets.shape)]
