"""The alerts of a run, gathered from the `alerts` of its rows. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from canary.record.step_row import Row, RowAlert
from canary.record.types import MOST_ALERTS, AlertSummary, RunRecord

WORST_FIRST = ("critical", "high", "medium", "low")


def with_alerts(record: RunRecord, rows: Iterable[Row]) -> RunRecord:
    """Return the record with the alerts of all ranks' measured rows, in order. An alert that
    several ranks raised at one step counts once. No detector watched an imported run."""
    if record.source is not None:
        return record
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
    """Return an alert as a line of text."""
    return f"{alert['severity']} {alert['type']} at step {alert['step']}: {alert['message']}"
