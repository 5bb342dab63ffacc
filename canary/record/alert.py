"""An alert: what a detector saw, at which step, and its limit. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from canary.record.plain import plain

if TYPE_CHECKING:
    from canary.record.step_row import RowAlert

Severity = Literal["low", "medium", "high", "critical"]
SEVERITIES: tuple[Severity, ...] = ("low", "medium", "high", "critical")
"""The mildest first."""


@dataclass(frozen=True)
class Alert:
    """One anomaly. `value` was seen and `threshold` is the limit, in the unit that the message
    names. `metadata` may hold anything: values that JSON lacks are written as text."""

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
        ValueError: an unknown severity.
        """
        if self.severity not in SEVERITIES:
            known = ", ".join(SEVERITIES)
            raise ValueError(f"unknown severity {self.severity!r} of an alert: use one of {known}")

    @property
    def key(self) -> str:
        """`<category>_<severity>`, its name in trackers."""
        return f"{self.category}_{self.severity}"

    def at_least(self, severity: Severity) -> bool:
        """Return whether this alert is at least as severe as `severity`."""
        return SEVERITIES.index(self.severity) >= SEVERITIES.index(severity)

    def as_dict(self) -> RowAlert:
        """Return the alert as `alerts.jsonl` and a record hold it, with plain values."""
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
    """Count the alerts of one step for trackers, by `anomaly/<category>_<severity>`."""
    found: dict[str, float] = {}
    for alert in alerts:
        name = f"anomaly/{alert.key}"
        found[name] = found.get(name, 0.0) + 1.0
    return found
