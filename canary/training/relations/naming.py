"""A model's own names for what transformers calls input_ids, attention_mask and position_ids."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

NOT_INPUTS = ("label", "target", "mask", "pos", "segment", "type", "seq_id", "cu_")
"""Parts of names of integers that are no token ids."""


def own_names(arguments: Mapping[str, Any], shape: tuple[int, ...]) -> dict[str, str]:
    """Return the model's names by those of transformers, where they differ.

    Args:
        arguments: of a call, in the order of the model's parameters.
        shape: of what it said: (rows, tokens, vocabulary), or (rows, classes).
    """
    if "input_ids" in arguments:
        return {}
    ids = next((name for name, value in arguments.items() if _are_ids(name, value, shape)), None)
    if ids is None:
        return {}
    found = {"input_ids": ids}
    for theirs, is_one in (("attention_mask", _is_mask), ("position_ids", _are_positions)):
        for name, value in arguments.items():
            alike = torch.is_tensor(value) and value.shape == arguments[ids].shape
            if theirs not in arguments and alike and is_one(name.lower(), value):
                found[theirs] = name
                break
    return found


def _are_ids(name: str, value: Any, shape: tuple[int, ...]) -> bool:
    if not torch.is_tensor(value) or value.dtype not in (torch.int32, torch.int64):
        return False
    if value.dim() != 2 or any(part in name.lower() for part in NOT_INPUTS):
        return False
    return tuple(value.shape) == shape[:2] if len(shape) == 3 else len(value) == shape[0]


def _is_mask(name: str, value: torch.Tensor) -> bool:
    """Whether it is 1 where a token is real. A padding mask is the other way round."""
    named = "mask" in name and "pad" not in name and "loss" not in name and "label" not in name
    return named and bool(((value == 0) | (value == 1)).all())


def _are_positions(name: str, value: torch.Tensor) -> bool:
    return "pos" in name and value.dtype in (torch.int32, torch.int64)
