"""An alert: what a detector saw, at which step, against which limit. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from canary.record.plain import plain
from canary.record.step_row import Row, RowAlert
from canary.record.types import MOST_ALERTS, AlertSummary, RunRecord

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


WORST_FIRST = ("critical", "high", "medium", "low")


def with_alerts(record: RunRecord, rows: Iterable[Row]) -> RunRecord:
    """The record with the alerts of the measured rows of all ranks, in order; what several ranks
    saw at one step counts once."""
    found: dict[tuple[int, int, str], RowAlert] = {}
    for row in rows:
        for alert in row.get("alerts") or ():
            found.setdefault((int(row["launch"]), int(alert["step"]), alert["type"]), alert)
    alerts = [found[key] for key in sorted(found, key=lambda key: key[:2])]
    severities: Counter[str] = Counter(alert["severity"] for alert in alerts)
    summary = AlertSummary(
        total=len(alerts),
        by_category=dict(sorted(Counter(alert["category"] for alert in alerts).items())),
        by_severity={name: severities[name] for name in WORST_FIRST if severities[name]},
        latest=alerts[-1] if alerts else None,
    )
    return record.model_copy(update={"alerts": alerts[:MOST_ALERTS], "alert_summary": summary})


def alert_words(alert: RowAlert) -> str:
    """One alert as a line of text."""
    return f"{alert['severity']} {alert['type']} at step {alert['step']}: {alert['message']}"
