"""Batches of any form as named tensors, which the look reads."""

from __future__ import annotations

import contextlib
import json
import sys
from collections import UserDict
from collections.abc import Iterator, Mapping, Sequence
from types import MemberDescriptorType
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence

from canary.record.exact import Micro
from canary.training.collectors.batches import IGNORE

MOST_ITEMS = 4096
"""Longer lists are read only if they are numbers, and a batch is not read beyond twice as many
values: an object may hold a whole data set."""
DEEPEST = 8
PLAIN = ("types", "argparse")
"""Modules of Python whose objects only hold attributes."""


class Named(dict[str, Any]):
    """Tensors by name."""

    unseen: tuple[str, ...] = ()
    """Names of values that could not be read, and words for what never came into sight."""
    entered: bool = False
    """Whether a loader yielded its tensors, or the model was called with them: then floats beside
    token sequences are no results of the model."""
    more: Micro | None = None
    """Further facts of it, as a micro-batch of the record."""

    def like(self, other: Named) -> Named:
        """Take over what another one says beside its tensors."""
        vars(self).update(vars(other))
        return self


def named(batch: Any) -> Named:
    """Return a batch as tensors by name, or by position in a sequence. Names of nested values are
    joined: `chosen_input_ids`.

    Arrays of other frameworks and lists of numbers become tensors, padded if lengths differ. Text
    becomes the tensor of its bytes. Objects are read by attribute. Other values are `unseen`.
    """
    if isinstance(batch, Named):
        return batch
    found, inner = Named(), _Inner()
    if (columns := _columns(batch)) is not None:
        inner.put_all("", columns)
    elif isinstance(batch, Mapping | list | tuple) and not _is_text(batch):
        for name, value in held_by(batch).items():
            tensor = _tensor(value)
            if tensor is not None:
                found[str(name)] = tensor
            else:
                inner.put(str(name), value)
    elif (tensor := _tensor(batch)) is not None:
        found["batch"] = tensor
    else:
        inner.put("", batch)
    return inner.added_to(found)


def with_nested(batch: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the batch with additional tensors for its lists and nested values."""
    inner = _Inner()
    for name, value in batch.items():
        if isinstance(value, Mapping) or (
            isinstance(value, list | tuple) and not _is_only(value, str)
        ):
            inner.put(str(name), value)
    return inner.added_to(Named(batch)) if inner.found else batch


def held_by(value: Any) -> Mapping[Any, Any]:
    """Return what a container or an object holds, by key, place or attribute; empty for others.

    An object is only read: its `__dict__` and slots, so no property and no `__getattr__` runs."""
    kind = type(value)
    if issubclass(kind, list | tuple):
        return dict(enumerate(value))
    items = items_of(value)
    if items is not None:
        return items
    root = kind.__module__.partition(".")[0]
    standard = root in sys.stdlib_module_names or root in ("builtins", "torch", "numpy")
    if callable(value) or (standard and root not in PLAIN):
        return {}
    found: dict[Any, Any] = {}
    for one in kind.__mro__:
        for name, slot in vars(one).items():
            if isinstance(slot, MemberDescriptorType) and name != "__dict__":
                with contextlib.suppress(AttributeError):  # it is not set
                    found[name] = slot.__get__(value)
    with contextlib.suppress(AttributeError):
        attributes = object.__getattribute__(value, "__dict__")
        found |= attributes if isinstance(attributes, dict) else {}
    return found


def items_of(value: Any) -> dict[Any, Any] | None:
    """Return what a mapping stores; None for other objects, and for mappings whose items are
    computed when they are read: they may draw random numbers."""
    if issubclass(type(value), UserDict):
        value = vars(value).get("data")  # Not a property of that name, which may compute.
    kind = type(value)
    if issubclass(kind, dict):
        return dict(dict.items(value))
    # The length of a TensorDict is that of its rows.
    return dict(value.items()) if kind.__module__.startswith("tensordict.") else None


def tensors_in(value: Any, name: str = "", depth: int = 0) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors of a value of any form, with their joined names."""
    if isinstance(value, torch.Tensor):
        yield name, value
    elif depth < DEEPEST:
        held = held_by(value)
        if len(held) <= MOST_ITEMS:
            for key, inner in held.items():
                joined = f"{name}_{key}" if name else str(key)
                yield from tensors_in(inner, joined, depth + 1)


class _Inner:
    """Collects the tensors nested in mappings, lists and objects."""

    def __init__(self) -> None:
        self.found: dict[str, torch.Tensor] = {}
        self._masks: dict[str, torch.Tensor] = {}
        self._unseen: list[str] = []
        self._above: list[int] = []
        """Ids of the containers around the current value: an object may hold itself."""
        self._left = 2 * MOST_ITEMS

    def put(self, name: str, value: Any) -> None:
        """Add the parts of the value that can be hashed."""
        self._left -= 1
        if self._left < 0:
            self._unseen.append("more")
            return
        columns = _columns(value)
        value = value if columns is None else columns
        several = isinstance(value, list | tuple) and not _is_only(value, str)
        tensor = self._stacked(name, value) if several else _tensor(value)
        if tensor is not None:
            self.found[name] = tensor
            return
        held = {} if id(value) in self._above else held_by(value)
        if not held or len(self._above) == DEEPEST or len(held) > MOST_ITEMS:
            empty = not held and isinstance(value, Mapping | list | tuple)
            if value is not None and not empty:
                self._unseen.append(name or "batch")
            return
        self._above.append(id(value))
        self.put_all(f"{name}_" if name else "", held)
        self._above.pop()

    def put_all(self, prefix: str, values: Mapping[Any, Any]) -> None:
        """Add each of the values."""
        for name, value in values.items():
            self.put(f"{prefix}{name}", value)

    def added_to(self, batch: Named) -> Named:
        """Return the batch with all collected tensors, and masks of the padded ones."""
        masks = {
            mask: present
            for name, present in self._masks.items()
            if (mask := name.replace("input_ids", "attention_mask")) not in (self.found | batch)
        }
        batch.update(self.found | masks)
        batch.unseen = tuple(sorted({*self._unseen}))
        return batch

    def _stacked(self, name: str, rows: Sequence[Any]) -> torch.Tensor | None:
        known = [tensor for row in rows if (tensor := _numbers(row)) is not None]
        if len(known) < len(rows) or len({(one.dtype, one.device) for one in known}) != 1:
            return None
        if len({tensor.shape for tensor in known}) == 1:
            return torch.stack(known)
        if any(tensor.dim() != 1 for tensor in known):
            return None
        if "input_ids" in name:
            self._masks[name] = pad_sequence([torch.ones_like(t) for t in known], batch_first=True)
        filler = IGNORE if name.endswith("labels") else 0
        return pad_sequence(known, batch_first=True, padding_value=filler)


def _numbers(value: Any) -> torch.Tensor | None:
    """Return a number, or nested lists of equal lengths, as a tensor; else None."""
    if isinstance(value, torch.Tensor):
        return value
    if hasattr(type(value), "__array__") or isinstance(value, int | float):
        return _array(value)
    if not isinstance(value, list | tuple) or not value:
        return None
    if _is_only(value, int | float):
        has_float = any(isinstance(one, float) for one in value)
        return _array([float(one) for one in value] if has_float else list(value))
    rows = [_numbers(row) for row in value]
    if any(row is None or row.shape != rows[0].shape for row in rows):  # type: ignore[union-attr]
        return None
    return torch.stack(rows)  # type: ignore[arg-type]


def _columns(value: Any) -> dict[str, list[Any]] | None:
    """Return the values by name of samples before collation: mappings with the same names; None
    for everything else."""
    rows = [*map(items_of, value)] if issubclass(type(value), list | tuple) else []
    if not rows or any(row is None or row.keys() != rows[0].keys() for row in rows):  # type: ignore[union-attr]
        return None
    return {str(name): [row[name] for row in rows if row] for name in rows[0] or ()}


def _is_only(values: Sequence[Any], kind: Any) -> bool:
    return bool(values) and all(isinstance(item, kind) for item in values)


def _array(value: Any) -> torch.Tensor | None:
    try:
        return torch.as_tensor(value.__array__() if hasattr(type(value), "__array__") else value)
    except (OverflowError, TypeError, ValueError):  # text, or numbers of more than 64 bits
        return None


def _is_text(value: Any) -> bool:
    return isinstance(value, list | tuple) and _is_only(value, str | int)


def _tensor(value: Any) -> torch.Tensor | None:
    if isinstance(value, torch.Tensor):
        return value
    if hasattr(type(value), "__array__"):
        return _array(value)
    if isinstance(value, str) or _is_text(value):
        return torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)
    return None
