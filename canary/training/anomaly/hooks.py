"""Handlers that are called with the alerts of a step, and may stop the run. Pure."""

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
"""Gets the alerts of one step, and that step."""
ANOMALY_DETECTION = "anomaly_detection"


class StopTraining(CanaryError):
    """Raised by a handler, or where an alert is as severe as `stop_on`: the training is to end."""


def stop_for(alert: Alert) -> StopTraining:
    """The end of a training for one alert's sake."""
    return StopTraining(
        f"stopped at step {alert.step} by {alert.type} ({alert.severity}): {alert.message}",
        "alerts.jsonl has all alerts; run without --stop-on to train on",
    )


class ProfilerRegistry:
    """Handlers by the name of what they want to hear of."""

    def __init__(self) -> None:
        self._handlers: dict[str, list[Handler]] = {}

    def register_hook(self, name: str, handler: Handler) -> None:
        """`handler(alerts, step)` is called at each step that raised alerts.

        Raises:
            UsageError: a name that nobody ever calls.
        """
        if name != ANOMALY_DETECTION:
            raise UsageError(f"no hook is called {name!r}", f"register for {ANOMALY_DETECTION!r}")
        self._handlers.setdefault(name, []).append(handler)

    def unregister_hook(self, name: str, handler: Handler) -> None:
        """Leaves it uncalled from now on; one that is not registered is no matter."""
        if handler in self._handlers.get(name, []):
            self._handlers[name].remove(handler)

    def handlers(self, name: str) -> tuple[Handler, ...]:
        """Those of a name, in the order in which they were registered."""
        return tuple(self._handlers.get(name, ()))

    def clear(self) -> None:
        """Forgets every handler."""
        self._handlers.clear()


profiler_registry = ProfilerRegistry()
"""The registry of this process."""


class AnomalyDetectionHook:
    """Passes a detector's alerts on to the handlers of `profiler_registry`."""

    def __init__(
        self, detector: AdvancedAnomalyDetector, registry: ProfilerRegistry = profiler_registry
    ) -> None:
        self.detector = detector
        self._registry = registry

    def register_with_profiler(self) -> AnomalyDetectionHook:
        """From now on, handlers of `anomaly_detection` hear of this detector's alerts. Once is
        enough."""
        self.detector.add_listener(self)
        return self

    def unregister(self) -> None:
        """Not any more."""
        self.detector.remove_listener(self)

    def __call__(self, alerts: list[Alert], step: int) -> None:
        """Calls every handler; then ends the training, if one of them said so."""
        call_all(self._registry.handlers(ANOMALY_DETECTION), alerts, step)


def call_all(handlers: Sequence[Handler], alerts: list[Alert], step: int) -> None:
    """Each handler in turn. One that raises is reported, and the others are called all the same.

    Raises:
        StopTraining: the first that one of them raised, after all were called.
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
                f"canary: the anomaly handler {name} failed at step {step}, and training goes on: "
                f"{type(error).__name__}: {error}",
                file=sys.stderr,
                flush=True,
            )
            traceback.print_exc()
    if stop is not None:
        raise stop
