"""Batches of any form as named tensors, which the look reads."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence

from canary.training.collectors.batches import IGNORE, parts

BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Integer type by size in bytes, to read floats of that size as bits."""


class Named(dict[str, Any]):
    """Tensors by name."""

    unpacked: tuple[str, ...] = ()
    """Names of tensors nested in a mapping or a list: older versions left these out."""
    fed_sha256: str | None = None
    """Hash of what entered the model of it, if a loop may have changed it after its loader."""


def named(batch: Any) -> Named:
    """Return a batch as tensors by name, or by position in a sequence. Names of nested values are
    joined: `chosen_input_ids`.

    Arrays of other frameworks and lists of numbers become tensors, padded if lengths differ. Text
    becomes the tensor of its bytes. Other values are left out.
    """
    if isinstance(batch, Named):
        return batch
    found, inner = Named(), _Inner()
    if _is_features(batch):
        inner.put_all("", _by_name(batch))
    elif isinstance(batch, Mapping) or (isinstance(batch, list | tuple) and not _is_text(batch)):
        items = batch.items() if isinstance(batch, Mapping) else enumerate(batch)
        for name, value in items:
            tensor = _tensor(value)
            if tensor is not None:
                found[str(name)] = tensor
            else:
                inner.put(str(name), value)
    elif (tensor := _tensor(batch)) is not None:
        found["batch"] = tensor
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


class _Inner:
    """Collects the tensors nested in mappings and lists."""

    def __init__(self) -> None:
        self.found: dict[str, torch.Tensor] = {}
        self._masks: dict[str, torch.Tensor] = {}

    def put(self, name: str, value: Any) -> None:
        """Add the parts of the value that can be hashed."""
        if _is_features(value):
            value = _by_name(value)
        if isinstance(value, Mapping):
            self.put_all(f"{name}_", value)
            return
        several = isinstance(value, list | tuple) and not _is_only(value, str)
        tensor = self._stacked(name, value) if several else _tensor(value)
        if tensor is not None:
            self.found[name] = tensor
        elif several:
            self.put_all(f"{name}_", dict(enumerate(value)))

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
        added = self.found | masks
        batch.update(added)
        batch.unpacked = tuple(sorted(added))
        return batch

    def _stacked(self, name: str, rows: Sequence[Any]) -> torch.Tensor | None:
        tensors = [_numbers(row) for row in rows]
        if not tensors or len({(t.dtype, t.device) for t in tensors if t is not None}) != 1:
            return None
        known = [tensor for tensor in tensors if tensor is not None]
        if len(known) < len(tensors):
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
    if hasattr(value, "__array__"):
        return _array(value)
    if isinstance(value, int | float):
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


def _is_features(value: Any) -> bool:
    """Return whether these are samples before collation: mappings with the same names."""
    return (
        isinstance(value, list | tuple)
        and _is_only(value, Mapping)
        and all(sample.keys() == value[0].keys() for sample in value)
    )


def _by_name(samples: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    return {str(name): [sample[name] for sample in samples] for name in samples[0]}


def _is_only(values: Sequence[Any], kind: Any) -> bool:
    return bool(values) and all(isinstance(item, kind) for item in values)


def _array(value: Any) -> torch.Tensor | None:
    try:
        return torch.as_tensor(value.__array__() if hasattr(value, "__array__") else value)
    except (OverflowError, TypeError, ValueError):  # text, or numbers of more than 64 bits
        return None


def _is_text(value: Any) -> bool:
    return _is_only(value, str | int)


def _tensor(value: Any) -> torch.Tensor | None:
    if isinstance(value, torch.Tensor):
        return value
    if hasattr(value, "__array__"):
        return _array(value)
    if isinstance(value, str) or (isinstance(value, list | tuple) and _is_text(value)):
        return torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)
    return None


def hashable(batch: Mapping[str, Any]) -> Named:
    """Return the batch with floats as integers of the same bits, to hash them too. Floats
    beside token sequences stay unhashed: the model may have computed them."""
    found = Named(batch)
    found.unpacked = getattr(batch, "unpacked", ())
    found.fed_sha256 = getattr(batch, "fed_sha256", None)
    if not parts(batch):
        for name, value in batch.items():
            if value.is_floating_point() and value.element_size() in BITS:
                found[name] = value.contiguous().view(BITS[value.element_size()])
    return found
