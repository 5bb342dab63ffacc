"""The alerts of a run: one line each as they happen, and a summary in bounded memory. Pure."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter, deque
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from canary.record import jsonio
from canary.record.alert import SEVERITIES, Alert

LATEST = 10
ALERTS_FILE = "alerts.jsonl"
SUMMARY_FILE = "alert_summary.json"


class AlertLog:
    """Counts alerts and appends each to a file in one write call, so that a kill loses none.

    If the file cannot be written, a message is printed once and the training continues.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._by_category: Counter[str] = Counter()
        self._by_severity: Counter[str] = Counter()
        self._latest: deque[Alert] = deque(maxlen=LATEST)
        self._pid = os.getpid()
        if path is not None:
            self._write("")

    def add(self, alerts: Iterable[Alert], **more: Any) -> None:
        """Add the alerts of one step, each written with the fields of `more`."""
        for alert in alerts:
            self._by_category[alert.category] += 1
            self._by_severity[alert.severity] += 1
            self._latest.append(alert)
            row = alert.as_dict() | more | {"time": time.time()}
            self._write(jsonio.dumps(row) + "\n")

    def _write(self, text: str) -> None:
        if self._path is None:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a", encoding="utf-8") as stream:
                stream.write(text)
        except OSError as error:
            print(f"canary: alerts are no longer written: {error}", file=sys.stderr, flush=True)
            self._path = None

    def write_summary(self) -> None:
        """Write the summary beside the alerts, in place of an earlier one."""
        if self._path is not None and self._pid == os.getpid():
            try:
                text = jsonio.dumps(self.summary(), indent=1) + "\n"
                jsonio.replace_file(self._path.with_name(SUMMARY_FILE), text)
            except OSError as error:
                print(f"canary: no summary of alerts: {error}", file=sys.stderr, flush=True)

    def summary(self) -> dict[str, Any]:
        """Return `{total_alerts, by_category, by_severity, latest_alerts}`; the worst severity
        first."""
        return {
            "total_alerts": sum(self._by_severity.values()),
            "by_category": dict(sorted(self._by_category.items())),
            "by_severity": {
                severity: self._by_severity[severity]
                for severity in reversed(SEVERITIES)
                if self._by_severity[severity]
            },
            "latest_alerts": [alert.as_dict() for alert in self._latest],
        }
