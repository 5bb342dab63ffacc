"""The batches of a loop: what a `DataLoader` yields, or else the tensors that enter the model."""

from __future__ import annotations

import functools
import hashlib
import inspect
from collections import deque
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from canary.training.collectors.batches import batch_sha256, integer_tensors, parts
from canary.training.collectors.named import Named, named

MOST_WAITING = 8
"""Batches kept per loader that no backward has used yet."""
TOKEN_TYPES = (torch.int64, torch.int32, torch.int16)


@dataclass
class _Yielded:
    """A batch of a loader."""

    batch: Any
    whole: dict[Any, Any]
    """What it held at first: a loop may take entries out of it."""
    entered: bool = False
    """Whether a tensor of it entered a call with gradients."""


class LoaderBatches:
    """Matches batches with backwards, in order: a loop may fetch the next batch early."""

    def __init__(self) -> None:
        self._waiting: dict[int, deque[_Yielded]] = {}
        self._last: int | None = None
        self._doubted: dict[int, int] = {}
        """How many of a loader's waiting batches may be for an evaluation."""

    def yielded(self, iterator: Any, batch: Any) -> None:
        """A loader yielded a batch."""
        self._last = id(iterator)
        queue = self._waiting.setdefault(self._last, deque(maxlen=MOST_WAITING))
        # A loop may take entries out of a batch: `labels = batch.pop("labels")`.
        whole = dict(batch) if isinstance(batch, MutableMapping) else {}
        queue.append(_Yielded(batch, whole))

    def entered(self, arguments: Mapping[str, Any]) -> None:
        """These tensors enter the model: batches before theirs may be skipped, as by a loop that
        resumes."""
        places = [_place(one) for one in arguments.values()]
        for queue in self._waiting.values():
            for one in queue:
                one.entered = one.entered or _holds(one.whole or one.batch, places)

    def doubted(self) -> None:
        """The model was called without gradients, or in evaluation mode: the last loader may be for
        an evaluation. A policy is called so for its old probabilities too."""
        if self._last in self._waiting:
            self._doubted[self._last] = len(self._waiting[self._last])

    def _settle(self) -> None:
        """A backward uses doubted batches only if no others wait: those of the last loader."""
        waiting = {key: len(queue) for key, queue in self._waiting.items()}
        sure = any(count > self._doubted.get(key, 0) for key, count in waiting.items())
        for key, count in self._doubted.items():
            queue = self._waiting.get(key)
            if queue and (sure or key != self._last):
                for _ in range(min(count, len(queue))):
                    queue.popleft()
        self._doubted = {}

    def take(self) -> list[Any]:
        """Return the batches of this backward: the oldest of each loader."""
        self._settle()
        for queue in self._waiting.values():
            while any(one.entered for one in queue) and not queue[0].entered:
                queue.popleft()
        taken = [queue.popleft() for queue in self._waiting.values() if queue]
        self._waiting = {key: queue for key, queue in self._waiting.items() if queue}
        return [{**one.whole, **one.batch} if one.whole else one.batch for one in taken]


def _place(value: torch.Tensor) -> int:
    """Return where a tensor lies in memory; 0 if it lies nowhere, as one that is traced."""
    try:
        return value.data_ptr()
    except RuntimeError:
        return 0


def _holds(batch: Any, places: Sequence[int]) -> bool:
    """Whether one of the places in memory is in a tensor of a batch."""
    values = batch.values() if isinstance(batch, Mapping) else batch
    if not isinstance(batch, Mapping | list | tuple):
        values = (batch,)
    for value in values:
        if isinstance(value, Mapping) and _holds(value, places):
            return True
        first = _place(value) if isinstance(value, torch.Tensor) else 0
        if first and any(first <= place < first + value.nbytes for place in places):
            return True
    return False


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


def fed_sha256(batch: Mapping[str, Any], entered: Mapping[str, Any]) -> str | None:
    """Return a hash of the integer tensors of a loader's batch as they entered the model. A loop
    may change them in between.

    Counted are tensors with as many rows as a tensor of the batch, and no more numbers. Others,
    such as text that a policy generated, depend on more than the batch. Names do not count.
    """
    yielded = integer_tensors(batch).values()
    sizes = {(len(one), one.numel()) for one in yielded if one.dim()}
    of_batch = [
        value.long()
        for value in entered.values()
        if value.dim() and any(len(value) == rows and value.numel() <= n for rows, n in sizes)
    ]
    if not of_batch:
        return None
    digests = sorted(batch_sha256({"fed": value}) for value in of_batch)
    return hashlib.sha256("".join(digests).encode()).hexdigest()


PAIR = {side: f"{side}_input_ids" for side in ("chosen", "rejected")}


def as_tokens(batch: Any, *, embeds: bool) -> Named:
    """Return a batch by name. Token sequences without a known name get the names `input_ids` and
    `labels`: if the model `embeds`, the first integer tensor of two dimensions, and the next one of
    the same shape. A pair of `chosen` and `rejected` has no labels."""
    found = named(batch)
    if parts(found) or not embeds:
        return found
    tokens = {
        name: value
        for name, value in found.items()
        if isinstance(value, torch.Tensor) and value.dim() == 2 and value.dtype in TOKEN_TYPES
    }
    if tokens.keys() >= {*PAIR}:
        return Named({PAIR.get(name, name): value for name, value in found.items()})
    ids = next((name for name in tokens if name != "labels"), None)
    if ids is None:
        return found
    labels = "labels" if "labels" in found else next((one for one in tokens if one != ids), None)
    alike = labels in tokens and tokens[labels].shape == tokens[ids].shape
    if "labels" in found and not alike:
        return found  # labels of whole sequences
    known = {ids: "input_ids"} | ({labels: "labels"} if alike else {})
    return Named({known.get(name, name): value for name, value in found.items()})
