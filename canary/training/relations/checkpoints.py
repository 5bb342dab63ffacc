"""Activation checkpoints that a model sets by itself, left out or switched for a while."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch.utils.checkpoint as torch_checkpoint
from torch import nn

from canary.relations.relation import CannotAsk
from canary.training.relations.unchanged import attributes_unchanged

NAMES = ("_checkpoint_without_reentrant_generator", "CheckpointFunction")
"""What `torch.utils.checkpoint.checkpoint` asks to keep and to run again, by `use_reentrant`."""

SWITCHES = ("activation_checkpointing_", "gradient_checkpointing_")
"""Beginnings of the names of two methods, the newest first."""
CHECKPOINTING = "gradient_checkpointing"
"""The attribute of modules of transformers that says whether it is on."""


@contextlib.contextmanager
def switched(model: nn.Module) -> Iterator[None]:
    """Switch activation checkpointing off if it is on, else on.

    Raises:
        CannotAsk: the model cannot switch it, and sets no checkpoint in the block.
    """
    on, off = (
        next((found for kind in SWITCHES if (found := getattr(model, kind + do, None))), None)
        for do in ("enable", "disable")
    )
    if on is None or off is None:
        with left_out():
            yield
        return
    was_on = any(vars(module).get(CHECKPOINTING) for module in model.modules())
    # To switch it on also puts a hook on the embeddings, which lets gradients through them.
    with attributes_unchanged(model):
        off() if was_on else on({"use_reentrant": False})
        yield


@contextlib.contextmanager
def left_out() -> Iterator[None]:
    """Run what a model would checkpoint as it is.

    Raises:
        CannotAsk: this torch has other names, or nothing was checkpointed in the block.
    """
    if not all(hasattr(torch_checkpoint, name) for name in NAMES):
        raise CannotAsk("checkpointing cannot be switched off with this version of torch")
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
        raise CannotAsk("the model has no activation checkpointing, and no switch for it")
