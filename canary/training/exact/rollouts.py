"""What a loop of online RL makes of its completions, as few numbers a step. Of the probe launch."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from canary.record.exact import Rollout, Signal


class RolloutCollector:
    """Describes the rollout of each step.

    Signals are the floating-point tensors of a rollout, (rows,) or (rows, tokens); of the latter
    the tokens of the completions count. `count` is the number of values, `rms` the root of their
    mean square; `placed` their mean times weights that only their places decide, so that it tells
    values that have changed places.
    """

    def __init__(self) -> None:
        self.found: Rollout = {"tokens": [], "signals": {}}

    def add(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """The rollout of one step; `completion_mask` (rows, tokens) is among the tensors."""
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
    """Over all values, computed in float64 on the host; 0 of none."""
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
