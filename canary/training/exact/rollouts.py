"""Describe the rollouts of online RL in the look, with a few numbers per step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from canary.record.exact import Rollout
from canary.training.collectors.aside import Wrapping, uncounted
from canary.training.collectors.batches import generated, unmasked


def add_rollout(found: Rollout, tensors: Mapping[str, torch.Tensor]) -> None:
    """Add the rollout of one step; `tensors` includes `completion_mask` (rows, tokens).

    Signals are the floating-point tensors of a rollout, (rows,) or (rows, tokens); the latter count
    only on tokens of completions. `count` is the number of values, `rms` their root mean square.
    `placed` is their mean with weights that depend only on position, so it shows reordered values.
    """
    mask = tensors["completion_mask"].bool()
    found["tokens"].append(int(mask.sum()))
    for name, value in tensors.items():
        if value.is_floating_point():
            kept = value[mask] if value.shape == mask.shape else value
            signal: Any = found["signals"].setdefault(name, {})
            for figure, number in statistics_of(kept).items():
                signal.setdefault(figure, []).append(number)


def statistics_of(values: torch.Tensor) -> dict[str, float]:
    """Return statistics over all values, in float64 on the host; all are 0 without values."""
    wide = values.detach().flatten().cpu().double()
    if not len(wide):
        return dict.fromkeys(("count", "mean", "rms", "placed"), 0)
    weights = torch.arange(1, len(wide) + 1, dtype=torch.float64).cos()
    return {
        "count": len(wide),
        "mean": float(wide.mean()),
        "rms": float(wide.square().mean().sqrt()),
        "placed": float((wide * weights).mean()),
    }


ONLINE = ("_generate_and_score_completions", "watch")
"""Attributes of trl's online trainers, and of a loop that reports its steps."""


class SampledIds:
    """Keeps every completion that the model generates, cut after its first EOS."""

    def __init__(self, model: Any, eos_ids: frozenset[int]) -> None:
        self._eos_ids = eos_ids
        self._rows: set[tuple[int, ...]] = set()
        Wrapping().wrap(model, "generate", self._around_generate)

    def _around_generate(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        output = original(*args, **kwargs)
        with uncounted():
            _, completions = generated(output, args, kwargs)
            rows = [] if completions is None else completions.tolist()
        for row in rows:
            end = next((i + 1 for i, token in enumerate(row) if token in self._eos_ids), len(row))
            self._rows.add(tuple(row[:end]))
        return output

    def not_sampled(self, inputs: Mapping[str, Any]) -> int | None:
        """Return how many rows of a training batch were not sampled. None if unknown: the model
        sampled nothing, or tools wrote into the completions."""
        ids, mask = inputs.get("completion_ids"), inputs.get("completion_mask")
        if not self._rows or ids is None or mask is None or "tool_mask" in inputs:
            return None
        return sum(bool(row) and tuple(row) not in self._rows for row in unmasked(ids, mask))


def watch_sampling(trainer: Any) -> SampledIds | None:
    """Start watching the sampling of an online trainer; return None for other trainers."""
    if not any(hasattr(trainer, name) for name in ONLINE):
        return None
    if not hasattr(trainer.model, "generate"):
        return None
    tokenizer = getattr(trainer, "processing_class", None)
    known = getattr(trainer, "eos_token_ids", None) or [getattr(tokenizer, "eos_token_id", None)]
    return SampledIds(trainer.model, frozenset(int(i) for i in known if i is not None))
