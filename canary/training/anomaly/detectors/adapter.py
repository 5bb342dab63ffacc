"""Tensors that are declared trainable and never change: an adapter that is not trained. Pure.

What changed is measured elsewhere (`canary.training.anomaly.parameters`, `canary.training.anomaly.measure`).
"""

from __future__ import annotations

from collections.abc import Iterator

from canary.record.alert import Alert
from canary.training.anomaly.observation import Observation

SHOWN = 5


class StalledAdapterDetector:
    """Tells once which tensors stand still."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def observe(self, observation: Observation) -> Iterator[Alert]:
        """Looks at what was found since the step before."""
        names = [name for name in observation.never_changed if name not in self._told]
        if not names:
            return
        self._told.update(names)
        shown = ", ".join(names[:SHOWN]) + (", ..." if len(names) > SHOWN else "")
        count = f"{len(names)} trainable tensor{'s' if len(names) > 1 else ''}"
        yield Alert(
            "high",
            "adapter",
            "stalled_adapter",
            f"{count} did not change in {observation.updates} updates: {shown}",
            observation.step,
            float(len(names)),
            0.0,
            {"names": names, "updates": observation.updates},
        )
