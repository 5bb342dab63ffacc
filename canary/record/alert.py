"""An alert: what a detector saw, at which step, against which limit. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from canary.record.plain import plain

if TYPE_CHECKING:
    from canary.record.step_row import RowAlert

Severity = Literal["low", "medium", "high", "critical"]
SEVERITIES: tuple[Severity, ...] = ("low", "medium", "high", "critical")
"""From what is worth a look to what ends a training."""


@dataclass(frozen=True)
class Alert:
    """One anomaly. `value` was seen where `threshold` is the limit; both in the unit that the
    message names. `metadata` holds anything; what is no JSON is written as plain words."""

    severity: Severity
    category: str
    type: str
    message: str
    step: int
    value: float | None = None
    threshold: float | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raises:
        ValueError: a severity that is none.
        """
        if self.severity not in SEVERITIES:
            known = ", ".join(SEVERITIES)
            raise ValueError(f"severity {self.severity!r} of an alert: one of {known}")

    @property
    def key(self) -> str:
        """`<category>_<severity>`, as trackers name it."""
        return f"{self.category}_{self.severity}"

    def at_least(self, severity: Severity) -> bool:
        """Whether this is as severe as `severity`, or more."""
        return SEVERITIES.index(self.severity) >= SEVERITIES.index(severity)

    def as_dict(self) -> RowAlert:
        """As `alerts.jsonl` and a record hold it: plain values only."""
        return {
            "severity": self.severity,
            "category": self.category,
            "type": self.type,
            "message": self.message,
            "step": self.step,
            "value": plain(self.value),
            "threshold": plain(self.threshold),
            "metadata": plain(dict(self.metadata)),
        }


def tracked(alerts: list[Alert]) -> dict[str, float]:
    """For trackers, the alerts of one step: `anomaly/<category>_<severity>`, how many."""
    found: dict[str, float] = {}
    for alert in alerts:
        name = f"anomaly/{alert.key}"
        found[name] = found.get(name, 0.0) + 1.0
    return found
