"""What trl's trainers gather of a step in their own metrics: rewards, KL, margins, lengths."""

from __future__ import annotations

from typing import Any

METRIC_ATTRIBUTES = ("_metrics", "_stored_metrics")
"""Where trl's trainers gather metrics between two logs; the second in ORPO and CPO."""
CUT_SHARE, EOS_RATE = "completions/clipped_ratio", "completions/eos_rate"
"""Of a step's completions: those cut at the longest length, and those that ended themselves."""


class StepMetrics:
    """Tells of one trainer what is new since the step before."""

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        self._seen: dict[str, int] = {}

    def _gathered(self) -> dict[str, list[float]]:
        """What the trainer has gathered since it logged last: a list a metric."""
        for attribute in METRIC_ATTRIBUTES:
            gathered = getattr(self._trainer, attribute, None)
            if isinstance(gathered, dict):
                return dict(gathered.get("train", {}))
        return {}

    def fresh(self) -> dict[str, float]:
        """Means of what was appended during this step; to be asked before the trainer logs."""
        fresh: dict[str, float] = {}
        for name, history in self._gathered().items():
            seen = self._seen.get(name, 0)
            new = history[seen:] if len(history) >= seen else history
            self._seen[name] = len(history)
            if new:
                fresh[name] = sum(float(value) for value in new) / len(new)
        if CUT_SHARE in fresh:
            fresh[EOS_RATE] = 1.0 - fresh[CUT_SHARE]
        return fresh

    def step_ended(self) -> None:
        """After the trainer has logged, which empties what it had gathered."""
        self._seen = {name: len(values) for name, values in self._gathered().items()}
