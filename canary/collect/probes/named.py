"""Batches of any form, as the tensors by name that the probes read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from canary.collect.probes.batches import parts

BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Integers of as many bytes as a float of that size."""


def named(batch: Any) -> dict[str, Any]:
    """A batch as tensors by name: of a mapping its own names, of a sequence the places in it.

    Arrays of other frameworks become tensors; text becomes the tensor of its bytes; what is none
    of these is left out.
    """
    if isinstance(batch, Mapping):
        items: Iterator[tuple[str, Any]] = ((str(name), value) for name, value in batch.items())
    elif isinstance(batch, list | tuple) and not _is_text(batch):
        items = ((str(place), value) for place, value in enumerate(batch))
    else:
        items = iter([("batch", batch)])
    found = ((name, _tensor(value)) for name, value in items)
    return {name: value for name, value in found if value is not None}


def _is_text(value: Any) -> bool:
    return bool(value) and all(isinstance(item, str | int) for item in value)


def _tensor(value: Any) -> torch.Tensor | None:
    if isinstance(value, torch.Tensor):
        return value
    if hasattr(value, "__array__"):
        return torch.as_tensor(value.__array__())
    if isinstance(value, str) or (isinstance(value, list | tuple) and _is_text(value)):
        return torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)
    return None


def hashable(batch: Mapping[str, Any]) -> dict[str, Any]:
    """The batch with its floats as the integers of the same bits, so that they are hashed too. Of
    token sequences the integers tell all, and floats beside them may be computed by the model."""
    if parts(batch):
        return dict(batch)
    return {
        name: value.contiguous().view(BITS[value.element_size()])
        if value.is_floating_point() and value.element_size() in BITS
        else value
        for name, value in batch.items()
    }
