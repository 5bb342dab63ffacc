"""Describe the rollouts of online RL in the probe, with a few numbers per step."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from canary.record.exact import Rollout, Signal


class RolloutCollector:
    """Describes the rollout of each step.

    Signals are the floating-point tensors of a rollout, (rows,) or (rows, tokens); the latter count
    only on tokens of completions. `count` is the number of values, `rms` their root mean square.
    `placed` is their mean with weights that depend only on position, so it shows reordered values.
    """

    def __init__(self) -> None:
        self.found: Rollout = {"tokens": [], "signals": {}}

    def add(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Add the rollout of one step; `tensors` includes `completion_mask` (rows, tokens)."""
        mask = tensors["completion_mask"].bool()
        self.found["tokens"].append(int(mask.sum()))
        for name, value in tensors.items():
            if not value.is_floating_point():
                continue
            kept = value[mask] if value.shape == mask.shape else value
            empty: Signal = {"count": [], "mean": [], "rms": [], "placed": []}
            signal = self.found["signals"].setdefault(name, empty)
            found = statistics_of(kept)
            signal["count"].append(int(found["count"]))
            signal["mean"].append(found["mean"])
            signal["rms"].append(found["rms"])
            signal["placed"].append(found["placed"])


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
