"""The batches of a loop: what a `DataLoader` yields, or else the tensors that enter the model."""

from __future__ import annotations

import functools
import hashlib
import inspect
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef

from canary.record.exact import Micro
from canary.training.collectors.batches import batch_sha256, hashable, parts
from canary.training.collectors.named import Named, items_of, named, tensors_in

MOST_WAITING = 8
"""Batches kept per loader that no backward has used yet."""
DEEPEST = 6
"""Operations that may lie between the model's loss and the loop's: a sum, a scale, a division."""
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
        queue.append(_Yielded(batch, items_of(batch) or {}))

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
        return [one.whole | (items_of(one.batch) or {}) or one.batch for one in taken]


def _place(value: torch.Tensor) -> int:
    """Return where a tensor lies in memory; 0 if it lies nowhere, as one that is traced."""
    try:
        return value.data_ptr()
    except RuntimeError:
        return 0


def _holds(batch: Any, places: Sequence[int]) -> bool:
    """Whether one of the places in memory is in a tensor of a batch."""
    for _, value in tensors_in(batch):
        first = _place(value)
        if first and any(first <= place < first + value.nbytes for place in places):
            return True
    return False


class Made:
    """What the model returned since the last backward, known by its memory, which is not kept."""

    def __init__(self) -> None:
        self._storages: dict[int, StorageWeakRef] = {}
        self._numbers: list[Any] = []
        """Where the graph computes the single numbers among them."""

    def add(self, outputs: Any) -> None:
        """The model returned these."""
        for _, value in tensors_in(outputs):
            if not value.dim() and value.grad_fn is not None:
                self._numbers.append(value.grad_fn)
            if _place(value):
                storage = StorageWeakRef(value.untyped_storage())
                # While it is referred to, no other storage gets its number.
                self._storages[storage.cdata] = storage

    def holds(self, value: torch.Tensor) -> bool:
        """Whether a tensor is one of the outputs, or a part of one."""
        return bool(self._storages and _place(value)) and (
            StorageWeakRef(value.untyped_storage()).cdata in self._storages
        )

    def computed(self, loss: torch.Tensor) -> bool:
        """Whether a loss is one of the outputs, or made of such numbers alone."""
        return bool(self._numbers) and self._is_made_of(loss.grad_fn, DEEPEST)

    def _is_made_of(self, node: Any, depth: int) -> bool:
        if node is None or any(node is one for one in self._numbers):
            return node is not None
        above = [one for one, _ in node.next_functions if one is not None]
        return bool(depth and above) and all(self._is_made_of(one, depth - 1) for one in above)


def entering(module: nn.Module, args: Any, kwargs: Mapping[str, Any]) -> Named:
    """Return the tensors among the arguments of a module's call, by name. Floats with a gradient
    are left out: the model or another one computed them."""
    kind: Any = type(module)
    names = _names(kind) if args else ()
    found = {
        names[place] if place < len(names) else f"input{place}": value
        for place, value in enumerate(args)
    }
    tensors = Named()
    for name, value in (found | dict(kwargs)).items():
        for key, one in tensors_in(value, name if items_of(value) is None else ""):
            if not one.requires_grad:
                tensors[key] = one
    tensors.entered = True
    return tensors


@functools.cache
def _names(kind: Any) -> tuple[str, ...]:
    """Return the names of the arguments that a module's forward takes by position."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(kind.forward).parameters.values()
    return tuple(one.name for one in parameters if one.kind in kinds)[1:]


def fed(batch: Mapping[str, Any], entered: Named) -> Micro:
    """Return hashes of a loader's batch as it entered the model: of its integer tensors, and of its
    floats. A loop may change them in between.

    Counted are tensors with as many rows as a tensor of the batch, and no more numbers. Others,
    such as text that a policy generated, depend on more than the batch. Names do not count.
    """
    found = Micro()
    yielded = {name: bits for name, bits in hashable(batch)[0].items() if bits.dim()}
    bits, _ = hashable(entered)
    for key, floats in (("fed_sha256", False), ("fed_floats_sha256", True)):
        # An image of integers becomes one of floats; ids never come from floats.
        sizes = {
            (len(value), value.numel())
            for name, value in yielded.items()
            if floats or not batch[name].is_floating_point()
        }
        digests = sorted(
            batch_sha256({"fed": value if floats else value.long()})
            for name, value in bits.items()
            if entered[name].is_floating_point() == floats
            and value.dim()
            and any(len(value) == rows and value.numel() <= most for rows, most in sizes)
        )
        if digests:
            found[key] = hashlib.sha256("".join(digests).encode()).hexdigest()  # type: ignore[literal-required]
    return found


PAIR = {side: f"{side}_input_ids" for side in ("chosen", "rejected")}


def as_tokens(batch: Any, *, embeds: bool, masks: dict[str, bool] | None = None) -> Named:
    """Return a batch by name. A pair of `chosen` and `rejected` has no labels.

    If the model `embeds`, token sequences without a known name get the names `input_ids` and
    `labels`: the first integer tensor of two dimensions, and the next one of its shape that is no
    mask.

    `masks`: whether a tensor of this loop is a mask, by name; its values are read once."""
    found, masks = named(batch), {} if masks is None else masks
    if parts(found) or not embeds:
        return found
    tokens = {
        name: value
        for name, value in found.items()
        if isinstance(value, torch.Tensor) and value.dim() == 2 and value.dtype in TOKEN_TYPES
    }
    if tokens.keys() >= {*PAIR}:
        return Named({PAIR.get(name, name): value for name, value in found.items()}).like(found)
    ids = next((name for name in tokens if name != "labels"), None)
    if ids is None:
        return found
    known = {ids: "input_ids"}
    for name, value in tokens.items():
        if name not in (ids, "labels") and value.shape == tokens[ids].shape:
            if name not in masks:
                masks[name] = _is_mask(value, tokens[ids])
            known |= {name: "attention_mask"} if masks[name] else {}
    others = (one for one in tokens if one not in known)
    labels = "labels" if "labels" in found else next(others, None)
    alike = labels in tokens and tokens[labels].shape == tokens[ids].shape
    if "labels" in found and not alike:
        return found  # labels of whole sequences
    if labels is not None and alike:
        known[labels] = "labels"
    return Named({known.get(name, name): value for name, value in found.items()}).like(found)


def _is_mask(value: torch.Tensor, ids: torch.Tensor) -> bool:
    """Whether each row of a tensor is ones and zeros, one after the other, beside ids above 1."""
    if value.numel() == 0 or int(ids.max()) <= 1:
        return False
    ends = (value[:, 1:] != value[:, :-1]).sum(dim=1)
    return bool((value == value.ne(0)).all() and (ends <= 1).all())
