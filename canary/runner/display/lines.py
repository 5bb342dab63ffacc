"""A run in plain lines: each launch's start and end, and every few seconds between."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TextIO

from canary.collect.step_row import Row
from canary.config.schema import CanaryConfig
from canary.errors import printable
from canary.protocol.job import Kind, Result
from canary.record.alerts import alert_words
from canary.runner.display import figures
from canary.runner.display.pace import Pace

LINE_EVERY_S = 5.0
SHOWN_PHASES = 3


class PlainLines:
    """Lines for a log; with `label`, each begins with it."""

    def __init__(self, stream: TextIO, label: str = "") -> None:
        self._stream = stream
        self._prefix = f"{label}: " if label else ""
        self._pace = Pace()
        self._last = 0.0

    def _print(self, text: str) -> None:
        print(self._prefix + text, file=self._stream, flush=True)

    def run_begins(self, run_dir: Path, config: CanaryConfig) -> None:
        """Says what runs, and where its record goes."""
        self._print(figures.headline(config))
        self._print(f"record: {run_dir}")

    def warned(self, text: str) -> None:
        """What a user should know before anything starts."""
        self._print(f"note: {printable(text)}")

    def launch_begins(self, kind: Kind, index: int, steps: int | None) -> None:
        """Says what the launch is for."""
        self._pace.begin(kind, steps)
        self._last = time.monotonic()
        length = "the whole training" if steps is None else f"{steps} steps"
        self._print(f"{kind}: {length}, {figures.PURPOSE[kind]}")

    def step_ended(self, kind: Kind, row: Row) -> None:
        """A line every five seconds."""
        self._pace.add(row)
        for alert in row.get("alerts") or ():
            self._print(f"  {printable(alert_words(alert))}")
        if time.monotonic() - self._last >= LINE_EVERY_S:
            self._last = time.monotonic()
            self._print(f"  step {figures.count(self._pace)} · {self._figures()}")

    def _figures(self) -> str:
        pace = self._pace
        largest = sorted(figures.phase_parts(pace), key=lambda part: -part[1])[:SHOWN_PHASES]
        phases = figures.phase_words(largest)
        parts = figures.speed(pace) + figures.machine(pace) + figures.learning(pace)
        return " · ".join(parts + ([" ".join(phases)] if phases else []) + figures.time_left(pace))

    def sampled(self, reading: Mapping[str, float]) -> None:
        """Told with the next line."""
        self._pace.reading = reading

    def launch_ended(self, kind: Kind, result: Result) -> None:
        """How the launch ended."""
        seconds = time.monotonic() - self._pace.started
        self._print(f"  {result.status} after {self._pace.done} steps, {seconds:.1f} s")

    def waiting(self) -> None:
        """Nothing to say."""
