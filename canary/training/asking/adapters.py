"""Which adapters of peft a model uses, and the same model with others."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

from torch import nn

State = tuple[tuple[bool, tuple[str, ...]], ...]
"""Per layer: whether its adapters are disabled, and the names of the active ones."""


def adapters_of(model: nn.Module) -> State:
    """Return the state of a model's adapters; empty if it has none."""
    if "peft" not in sys.modules:
        return ()
    return tuple((one._disable_adapters, _names(one._active_adapter)) for one in _layers(model))


def adapters_in_words(state: State) -> str:
    """Return for people which adapters are active."""
    names = {name for disabled, names in state if not disabled for name in names}
    return f"with the adapter {', '.join(sorted(names))}" if names else "without its adapters"


@contextlib.contextmanager
def with_adapters(model: nn.Module, state: State) -> Iterator[None]:
    """Use these adapters within a block. Which parameters are trained stays as it is."""
    layers = _layers(model)
    kept = [(one, one._disable_adapters, one._active_adapter) for one in layers]
    try:
        for one, (disabled, names) in zip(layers, state, strict=False):
            one._disable_adapters, one._active_adapter = disabled, [*names]
        yield
    finally:
        for one, disabled, active in kept:
            one._disable_adapters, one._active_adapter = disabled, active


def _layers(model: nn.Module) -> list[Any]:
    return [
        one
        for one in model.modules()
        if hasattr(one, "_disable_adapters") and hasattr(one, "_active_adapter")
    ]


def _names(active: Any) -> tuple[str, ...]:
    return (active,) if isinstance(active, str) else tuple(active)
