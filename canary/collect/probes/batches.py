"""What enters a training step: token counts, and the hash of the integer tensors.

Reads the batches of SFT (`input_ids, labels`), preferences (`input_ids, completion_mask`) and
online RL (`prompt_ids, prompt_mask, completion_ids, completion_mask`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import torch

IGNORE = -100
"""The label that the loss leaves out."""


def count_tokens(inputs: Mapping[str, Any]) -> dict[str, torch.Tensor | int]:
    """Counts of one micro-batch, left on the device.

    `input_tokens`: positions not masked as padding. `label_tokens`: positions the loss is taken on.
    `completion_tokens`: generated ones, in online RL only.
    """
    if "completion_ids" in inputs and "prompt_ids" in inputs:
        completion = inputs["completion_mask"].sum()
        return {
            "input_tokens": inputs["prompt_mask"].sum() + completion,
            "label_tokens": completion,
            "completion_tokens": completion,
        }
    counts: dict[str, torch.Tensor | int] = {}
    if "attention_mask" in inputs:
        counts["input_tokens"] = inputs["attention_mask"].sum()
    elif "input_ids" in inputs:
        counts["input_tokens"] = inputs["input_ids"].numel()
    if "labels" in inputs:
        counts["label_tokens"] = inputs["labels"].ne(IGNORE).sum()
    elif "completion_mask" in inputs:
        counts["label_tokens"] = inputs["completion_mask"].sum()
    return counts


def integer_tensors(inputs: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """The integer and boolean tensors of a batch, by name."""
    return {
        name: value
        for name, value in sorted(inputs.items())
        if isinstance(value, torch.Tensor) and not value.is_floating_point()
    }


def batch_sha256(inputs: Mapping[str, Any]) -> str:
    """SHA-256 over name, dtype, shape and bytes of each integer tensor, in order of names."""
    digest = hashlib.sha256()
    for name, value in integer_tensors(inputs).items():
        digest.update(f"{name}:{value.dtype}:{tuple(value.shape)}:".encode())
        digest.update(value.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def describe_batch(inputs: Mapping[str, Any], tokenizer: Any) -> dict[str, Any]:
    """Everything exact about one micro-batch: hash, shapes, and counts of special tokens.

    Counts of EOS and BOS look only where the loss does and at unmasked positions respectively.
    """
    counts = {name: int(value) for name, value in count_tokens(inputs).items()}
    described: dict[str, Any] = {
        "sha256": batch_sha256(inputs),
        "shapes": {name: list(value.shape) for name, value in integer_tensors(inputs).items()},
        **counts,
    }
    described.update(_special_counts(inputs, tokenizer))
    advantages = inputs.get("advantages")
    if isinstance(advantages, torch.Tensor):
        described["advantages"] = [float(value) for value in advantages.detach().flatten().tolist()]
    return described


def _special_counts(inputs: Mapping[str, Any], tokenizer: Any) -> dict[str, int]:
    eos, bos, pad = (getattr(tokenizer, f"{name}_token_id", None) for name in ("eos", "bos", "pad"))
    if "completion_ids" in inputs:
        ids, learned = inputs["completion_ids"], inputs["completion_mask"].bool()
        present = learned
    elif "input_ids" in inputs:
        ids = inputs["input_ids"]
        mask = inputs.get("attention_mask")
        present = mask.bool() if mask is not None else torch.ones_like(ids, dtype=torch.bool)
        if "labels" in inputs and inputs["labels"].shape == ids.shape:
            learned = inputs["labels"].ne(IGNORE)
        elif "completion_mask" in inputs:
            learned = inputs["completion_mask"].bool()
        else:
            learned = present
    else:
        return {}
    counts: dict[str, int] = {"sequences": int(ids.shape[0])}
    if eos is not None:
        counts["eos_labels"] = int(((ids == eos) & learned).sum())
    if bos is not None:
        starts = (ids == bos) & present
        counts["bos_tokens"] = int(starts.sum())
        counts["bos_most_in_a_sequence"] = int(starts.sum(dim=-1).max()) if ids.numel() else 0
    counts["pad_tokens"] = int((~present).sum())
    if pad is not None:
        counts["pad_ids"] = int((ids == pad).sum())
    return counts
