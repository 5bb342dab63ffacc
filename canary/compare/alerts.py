"""Alerts that only the current side raised: a warning, never a failure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from canary.baseline.comparability import look_alone
from canary.compare.checks import check_of
from canary.compare.report import Check, RaisedAlert
from canary.errors import counted
from canary.record.alert import WORST_FIRST
from canary.record.jsonio import number
from canary.record.types import RunRecord

NAMED = 3


def alerts_of(records: Sequence[RunRecord]) -> tuple[RaisedAlert, ...]:
    """Return one alert per type with the count of the type, worst first, then earliest."""
    found: dict[str, RaisedAlert] = {}
    for record in records:
        for alert in sorted(record.alerts, key=lambda one: _order(one["severity"], one["step"])):
            raised = RaisedAlert(
                alert["severity"],
                alert["category"],
                alert["type"],
                alert["message"],
                alert["step"],
                number(alert.get("value")),
                number(alert.get("threshold")),
            )
            kept = found.get(raised.type)
            found[raised.type] = raised if kept is None else replace(kept, count=kept.count + 1)
    return tuple(sorted(found.values(), key=lambda one: _order(one.severity, one.step)))


def new_alerts(current: Sequence[RunRecord], baseline: Sequence[RunRecord]) -> list[RaisedAlert]:
    """Return the current alerts of types that the baseline did not raise, one per type."""
    known = {alert["type"] for record in baseline for alert in record.alerts}
    return [alert for alert in alerts_of(current) if alert.type not in known]


def _order(severity: str, step: int) -> tuple[int, int]:
    return WORST_FIRST.index(severity), step


def _watched(record: RunRecord) -> bool:
    """Whether alert detectors ran: they do not run in a look."""
    return record.alert_summary is not None and not look_alone(record)


def alert_checks(current: Sequence[RunRecord], baseline: Sequence[RunRecord]) -> list[Check]:
    """Return the check `alerts`; an empty list if detectors ran on neither side."""
    watched = list(map(_watched, (*current, *baseline)))
    if not any(record.alert_summary is not None for record in (*current, *baseline)):
        return []
    if not any(watched[: len(current)]):
        return [check_of("alerts", "skip", "no alert detectors ran on the current side")]
    after, new = alerts_of(current), new_alerts(current, baseline)
    known = {alert["type"] for record in baseline for alert in record.alerts}
    words = _message(new, len(after), any(watched[len(current) :]))
    found = check_of(
        "alerts",
        "warn" if new else "pass",
        words,
        baseline=len(known),
        current=len(after),
        unit="types",
        delta=float(len(new)),
        threshold=0.0,
        scale="types",
    )
    return [found]


def _message(new: Sequence[RaisedAlert], types: int, baseline_watched: bool) -> str:
    if not new:
        return f"{counted(types, 'alert type')}, also in the baseline" if types else "no alerts"
    shown = "; ".join(map(_words, new[:NAMED]))
    more = f"; {len(new) - NAMED} more" if len(new) > NAMED else ""
    caveat = "" if baseline_watched else " (no alert detectors ran on the baseline)"
    return f"{shown}{more}{caveat}"


def _words(alert: RaisedAlert) -> str:
    at = f"{alert.type} ({alert.severity}) at step {alert.step}"
    return at if alert.value is None else f"{at}, value {alert.value:.4g}"
