"""Activation checkpoints that a model sets by itself, left out for a while."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch.utils.checkpoint as torch_checkpoint

from canary.relations.relation import CannotAsk

NAMES = ("_checkpoint_without_reentrant_generator", "CheckpointFunction")
"""What `torch.utils.checkpoint.checkpoint` asks to keep and to run again, by `use_reentrant`."""


@contextlib.contextmanager
def left_out() -> Iterator[None]:
    """Run what a model would checkpoint as it is.

    Raises:
        CannotAsk: this torch has other names, or nothing was checkpointed in the block.
    """
    if not all(hasattr(torch_checkpoint, name) for name in NAMES):
        raise CannotAsk("this torch does not let checkpoints be left out")
    seen: list[bool] = []

    def generator(*_: Any, **__: Any) -> Iterator[None]:
        seen.append(True)
        yield

    def apply(function: Callable[..., Any], preserve: bool, *args: Any) -> Any:
        seen.append(True)
        return function(*args)

    kept = {name: getattr(torch_checkpoint, name) for name in NAMES}
    try:
        setattr(torch_checkpoint, NAMES[0], generator)
        setattr(torch_checkpoint, NAMES[1], SimpleNamespace(apply=apply))
        yield
    finally:
        for name, value in kept.items():
            setattr(torch_checkpoint, name, value)
    if not seen:
        raise CannotAsk("the model cannot switch checkpointing, and sets no checkpoint")
