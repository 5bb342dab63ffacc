"""Check in online RL that the sampled ids are the ids that are trained on."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

ONLINE = ("_generate_and_score_completions", "watch")
"""Attributes of trl's online trainers, and of a loop that reports its steps."""


class SampledIds:
    """Keeps every completion that the model generates, cut after its first EOS."""

    def __init__(self, model: Any, eos_ids: frozenset[int]) -> None:
        self._eos_ids = eos_ids
        self._rows: set[tuple[int, ...]] = set()
        original = model.generate

        @functools.wraps(original)
        def generate(*args: Any, **kwargs: Any) -> Any:
            output = original(*args, **kwargs)
            prompts = kwargs.get("input_ids", args[0] if args else None)
            sequences = getattr(output, "sequences", output)
            if isinstance(prompts, torch.Tensor) and isinstance(sequences, torch.Tensor):
                with _disable_current_modes():
                    self._keep(sequences[:, prompts.shape[1] :])
            return output

        model.generate = generate

    def _keep(self, completions: torch.Tensor) -> None:
        for row in completions.tolist():
            end = next((i + 1 for i, token in enumerate(row) if token in self._eos_ids), len(row))
            self._rows.add(tuple(row[:end]))

    def not_sampled(self, inputs: Mapping[str, Any]) -> int | None:
        """Return how many rows of a training batch were not sampled. None if unknown: the model
        sampled nothing, or tools wrote into the completions."""
        ids, mask = inputs.get("completion_ids"), inputs.get("completion_mask")
        if not self._rows or ids is None or mask is None or "tool_mask" in inputs:
            return None
        unknown = 0
        for row, kept in zip(ids.tolist(), mask.bool().tolist(), strict=True):
            tokens = tuple(token for token, keep in zip(row, kept, strict=True) if keep)
            unknown += bool(tokens) and tokens not in self._rows
        return unknown


def sampled_rows(trainer: Any) -> SampledIds | None:
    """Start watching the sampling of an online trainer; return None for other trainers."""
    if not any(hasattr(trainer, name) for name in ONLINE):
        return None
    if not hasattr(trainer.model, "generate"):
        return None
    tokenizer = getattr(trainer, "processing_class", None)
    known = getattr(trainer, "eos_token_ids", None) or [getattr(tokenizer, "eos_token_id", None)]
    return SampledIds(trainer.model, frozenset(int(i) for i in known if i is not None))
