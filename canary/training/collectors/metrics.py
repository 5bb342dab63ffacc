"""The metrics that trl's trainers collect in a step: rewards, KL, margins, lengths."""

from __future__ import annotations

from typing import Any

METRIC_ATTRIBUTES = ("_metrics", "_stored_metrics")
"""Attributes in which trl's trainers collect metrics between two logs; the second in ORPO, CPO."""
CUT_SHARE, EOS_RATE = "completions/clipped_ratio", "completions/eos_rate"
"""Share of a step's completions cut at the maximum length, and share that ended with EOS."""


class StepMetrics:
    """Finds the metrics of one trainer that are new since the previous step."""

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        self._seen: dict[str, int] = {}

    def _gathered(self) -> dict[str, list[float]]:
        """Return the metrics collected since the trainer's last log, one list per metric."""
        for attribute in METRIC_ATTRIBUTES:
            gathered = getattr(self._trainer, attribute, None)
            if isinstance(gathered, dict):
                return dict(gathered.get("train", {}))
        return {}

    def fresh(self) -> dict[str, float]:
        """Return the means of the values appended in this step. Call it before the trainer logs."""
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
        """Note the step's end. Call it after the trainer has logged, which empties its lists."""
        self._seen = {name: len(values) for name, values in self._gathered().items()}
