"""Trainable tensors that never change, such as an adapter that is not trained. Pure.

`canary.training.anomaly.parameters` measures which tensors changed.
"""

from __future__ import annotations

from collections.abc import Iterator

from canary.record.alert import Alert
from canary.training.anomaly.observation import Observation

SHOWN = 5


class StalledAdapterDetector:
    """Reports each unchanged tensor once."""

    def __init__(self) -> None:
        self._reported: set[str] = set()

    def observe(self, observation: Observation) -> Iterator[Alert]:
        """Check the unchanged tensors found since the previous step."""
        names = [name for name in observation.never_changed if name not in self._reported]
        if not names:
            return
        self._reported.update(names)
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
