"""Put a model back as it was, whatever was done to it within a block."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from typing import Any

from torch import nn


@contextlib.contextmanager
def attributes_unchanged(model: nn.Module) -> Iterator[None]:
    """Put back submodules, hooks and plain attributes of a model after a block."""
    attributes = [(vars(module), _shallow(vars(module))) for module in model.modules()]
    try:
        yield
    finally:
        for place, kept in attributes:
            _restore(place, kept)


@contextlib.contextmanager
def unchanged(model: nn.Module) -> Iterator[None]:
    """Put back parameters and buffers too; they are copied."""
    tensors = [*model.parameters(), *model.buffers()]
    values = [(one, one.data, one.detach().clone(), one.requires_grad) for one in tensors]
    try:
        with attributes_unchanged(model):
            yield
    finally:
        for one, data, value, requires_grad in values:
            one.data = data
            one.data.copy_(value)
            one.requires_grad_(requires_grad)


def _shallow(place: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return each value with a copy of what it holds, if it is a container."""
    return {
        name: (value, copy.copy(value) if isinstance(value, dict | list | set) else None)
        for name, value in place.items()
    }


def _restore(place: dict[str, Any], kept: dict[str, tuple[Any, Any]]) -> None:
    for value, held in kept.values():
        if isinstance(value, list):
            value[:] = held
        elif isinstance(value, dict | set):
            value.clear()
            value.update(held)
    place.clear()
    place.update({name: value for name, (value, _) in kept.items()})
