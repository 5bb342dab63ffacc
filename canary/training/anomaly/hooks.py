"""Handlers that get the alerts of a step and may stop the run. Pure."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from canary.errors import CanaryError, UsageError
from canary.record.alert import Alert

if TYPE_CHECKING:
    from canary.training.anomaly.advanced import AdvancedAnomalyDetector

Handler = Callable[[list[Alert], int], Any]
"""Called with the alerts of one step, and its number."""
ANOMALY_DETECTION = "anomaly_detection"


class StopTraining(CanaryError):
    """Ends the training. Raised by a handler, or for an alert at least as severe as `stop_on`."""


def stop_for(alert: Alert) -> StopTraining:
    """Return the exception that ends the training because of `alert`."""
    return StopTraining(
        f"stopped at step {alert.step} by {alert.type} ({alert.severity}): {alert.message}",
        "read all alerts in alerts.jsonl; run without --stop-on to continue despite alerts",
    )


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
            print(
                f"canary: the anomaly handler {name} failed at step {step}, training continues: "
                f"{type(error).__name__}: {error}",
                file=sys.stderr,
                flush=True,
            )
            traceback.print_exc()
    if stop is not None:
        raise stop
