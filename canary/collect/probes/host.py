"""What the training process alone can tell of its host: Python's lock and context switches."""

from __future__ import annotations

import resource
from typing import Any

POLLING_US, SAMPLING_US, SLEEPING_US = 1_000, 10_000, 100_000
"""gilknocker knocks each millisecond for 10 ms, then sleeps for 100: what it costs a training is in
docs/bottlenecks.md."""
NO_KNOCKER = "gilknocker is not installed in the Python that trains: pip install 'rlhf-canary[gil]'"


class HostWatch:
    """Watches one training from `begin` to `end`; a thread of gilknocker's where that is there."""

    def __init__(self) -> None:
        self.unmeasured: dict[str, str] = {}
        self._knocker: Any = None
        self._before = (0, 0)

    def begin(self) -> None:
        """From here on."""
        self._before = _switches()
        try:
            from gilknocker import KnockKnock
        except ImportError:
            self.unmeasured = dict.fromkeys(("host.gil_contention", "host.gil_held"), NO_KNOCKER)
            return
        self._knocker = KnockKnock(POLLING_US, SAMPLING_US, SLEEPING_US)
        self._knocker.start()

    def end(self) -> dict[str, float]:
        """Stops, and tells as `Launch.host` has it."""
        voluntary, involuntary = (
            now - before for now, before in zip(_switches(), self._before, strict=True)
        )
        found: dict[str, float] = {
            "voluntary_switches": voluntary,
            "involuntary_switches": involuntary,
        }
        if self._knocker is not None:
            found["gil_held"] = float(self._knocker.contention_metric)
        self.stop()
        return found

    def stop(self) -> None:
        """Ends the knocking, whatever became of the training."""
        knocker, self._knocker = self._knocker, None
        if knocker is not None:
            knocker.stop()


def _switches() -> tuple[int, int]:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_nvcsw, used.ru_nivcsw
