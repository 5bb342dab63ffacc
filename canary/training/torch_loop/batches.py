"""The batches of a loop: what a `DataLoader` yields, or else the tensors that enter the model."""

from __future__ import annotations

import functools
import inspect
from collections import deque
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from canary.training.collectors.batches import parts
from canary.training.collectors.named import named

MOST_WAITING = 8
"""Batches kept per loader that no backward has used yet."""
TOKEN_TYPES = (torch.int64, torch.int32, torch.int16)


class LoaderBatches:
    """Matches batches with backwards, in order: a loop may fetch the next batch early."""

    def __init__(self) -> None:
        self._waiting: dict[int, deque[Any]] = {}
        self._last: int | None = None

    def yielded(self, iterator: Any, batch: Any) -> None:
        """A loader yielded a batch."""
        self._last = id(iterator)
        queue = self._waiting.setdefault(self._last, deque(maxlen=MOST_WAITING))
        queue.append(batch)

    def not_trained(self) -> None:
        """The model was called without gradients: the last loader is not for training."""
        if self._last is not None:
            self._waiting.pop(self._last, None)

    def take(self) -> list[Any]:
        """Return the batches of this backward: the oldest of each loader."""
        taken = [queue.popleft() for queue in self._waiting.values() if queue]
        self._waiting = {key: queue for key, queue in self._waiting.items() if queue}
        return taken


def entering(module: nn.Module, args: Any, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the integer tensors among the arguments of a module's call, by name."""
    kind: Any = type(module)
    names = _names(kind) if args else ()
    found = {
        names[place] if place < len(names) else f"input{place}": value
        for place, value in enumerate(args)
    }
    tensors: dict[str, Any] = {}
    for name, value in (found | dict(kwargs)).items():
        inner = value if isinstance(value, Mapping) else {name: value}
        tensors |= {
            str(key): one
            for key, one in inner.items()
            if isinstance(one, torch.Tensor) and not one.is_floating_point()
        }
    return tensors


@functools.cache
def _names(kind: Any) -> tuple[str, ...]:
    """Return the names of the arguments that a module's forward takes by position."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(kind.forward).parameters.values()
    return tuple(one.name for one in parameters if one.kind in kinds)[1:]


def as_tokens(batch: Any, *, embeds: bool) -> dict[str, Any]:
    """Return a batch by name. Token sequences without a known name get the names `input_ids` and
    `labels`: if the model `embeds`, the first integer tensor of two dimensions, and the next one of
    the same shape."""
    found: dict[str, Any] = named(batch)
    if parts(found) or "labels" in found or not embeds:
        return found
    sequences = [
        name
        for name, value in found.items()
        if isinstance(value, torch.Tensor) and value.dim() == 2 and value.dtype in TOKEN_TYPES
    ]
    if not sequences:
        return found
    shape = found[sequences[0]].shape
    known = {sequences[0]: "input_ids"}
    known |= {name: "labels" for name in sequences[1:2] if found[name].shape == shape}
    return {known.get(name, name): value for name, value in found.items()}
