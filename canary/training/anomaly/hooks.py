"""Where alerts go: lines and a summary in files, and handlers, which may stop the run. Pure."""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from canary.errors import CanaryError, UsageError
from canary.record import jsonio
from canary.record.alert import SEVERITIES, Alert

if TYPE_CHECKING:
    from canary.training.anomaly.advanced import AdvancedAnomalyDetector

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


Handler = Callable[[list[Alert], int], Any]
"""Called with the alerts of one step, and its number."""
ANOMALY_DETECTION = "anomaly_detection"


class StopTraining(CanaryError):
    """Ends the training. Raised by a handler, or for an alert at least as severe as `stop_on`."""


class ProfilerRegistry:
    """Handlers of alerts. There is one hook: `anomaly_detection`."""

    def __init__(self) -> None:
        self.handlers: list[Handler] = []

    def register_hook(self, name: str, handler: Handler) -> None:
        """Call `handler(alerts, step)` at each step with alerts, from now on.

        Raises:
            UsageError: unknown hook name.
        """
        if name != ANOMALY_DETECTION:
            raise UsageError(f"there is no hook {name!r}", f"register for {ANOMALY_DETECTION!r}")
        self.handlers.append(handler)

    def clear(self) -> None:
        """Remove all handlers."""
        self.handlers.clear()


profiler_registry = ProfilerRegistry()
"""The registry of this process."""


class AnomalyDetectionHook:
    """Passes a detector's alerts to the handlers of `profiler_registry`."""

    def __init__(self, detector: AdvancedAnomalyDetector) -> None:
        self.detector = detector

    def register_with_profiler(self) -> AnomalyDetectionHook:
        """Pass this detector's alerts to handlers of `anomaly_detection`. Call it once."""
        self.detector.add_listener(self)
        return self

    def unregister(self) -> None:
        """Stop passing alerts."""
        self.detector.remove_listener(self)

    def __call__(self, alerts: list[Alert], step: int) -> None:
        """Call every handler. Raises StopTraining if one of them did."""
        call_all(tuple(profiler_registry.handlers), alerts, step)


def call_all(handlers: Sequence[Handler], alerts: list[Alert], step: int) -> None:
    """Call each handler. If one fails, report it and call the others.

    Raises:
        StopTraining: the first one raised, after all handlers were called.
    """
    stop: StopTraining | None = None
    for handler in handlers:
        try:
            handler(list(alerts), step)
        except StopTraining as wanted:
            stop = stop or wanted
        except Exception as error:  # noqa: BLE001 - a user's handler may raise anything
            name = getattr(handler, "__qualname__", type(handler).__name__)
            say_failed(
                f"the anomaly handler {name} failed at step {step}, training continues", error
            )
    if stop is not None:
        raise stop


def say_failed(what: str, error: Exception) -> None:
    """Print the error of a user's code that is being handled, with its frames."""
    text = f"canary: {what}: {type(error).__name__}: {error}"
    print(text, file=sys.stderr, flush=True)
    traceback.print_exc()
