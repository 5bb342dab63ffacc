"""Adapters that a model's own modules can merge into their weights, and the way back."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from canary.training.relations.unchanged import unchanged

NAMES = ("merge", "merge_adapter", "merge_weights")
"""Methods that merge; each needs another one that takes it back, with `un` before its name."""


@contextlib.contextmanager
def merged(model: nn.Module) -> Iterator[int]:
    """Merge all adapters within a block, and put everything back after it.

    Yields how many modules were merged: the innermost ones that have trainable parameters, and two
    methods of `NAMES` that need no arguments.
    """
    merges = _merges(model)
    with unchanged(model if merges else nn.Module()):
        with torch.no_grad():
            for merge in merges:
                merge()
        yield len(merges)


def _merges(model: nn.Module) -> list[Callable[[], Any]]:
    found: list[Callable[[], Any]] = []
    able = {
        id(module): merge
        for module in model.modules()
        if (merge := _merge_of(module)) is not None
        and any(one.requires_grad for one in module.parameters())
    }
    for module in model.modules():
        inside = (one for one in module.modules() if one is not module)
        if id(module) in able and not any(id(one) in able for one in inside):
            found.append(able[id(module)])
    return found


def _merge_of(module: nn.Module) -> Callable[[], Any] | None:
    for name in NAMES:
        methods = [getattr(type(module), one, None) for one in (name, f"un{name}")]
        if all(map(_is_free, methods)):
            method: Callable[[], Any] = getattr(module, name)
            return method
    return None


def _is_free(method: Any) -> bool:
    """Whether a method of a class needs no arguments but the object."""
    if not inspect.isfunction(method):
        return False
    needed = [
        one
        for one in inspect.signature(method).parameters.values()
        if one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
    ]
    return len(needed) == 1
