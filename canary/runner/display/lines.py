"""A run in lines: each launch's start and end, and every few seconds between; plain ones for a
log, or JSON for another program."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, TextIO

from canary.config.schema import CanaryConfig
from canary.errors import printable
from canary.protocol.job import Kind, Result
from canary.record import jsonio
from canary.record.alerts import alert_words
from canary.record.step_row import Row
from canary.runner.display import figures
from canary.runner.display.pace import Pace

LINE_EVERY_S = 5.0
SHOWN_PHASES = 3


@dataclass(frozen=True)
class Event:
    """One line, as another program reads it."""

    kind: Literal["run", "note", "launch", "alert", "step", "ended"]
    text: str
    """For people; nothing is read from it."""


class PlainLines:
    """Lines for a log; with `label`, each begins with it."""

    def __init__(self, stream: TextIO, label: str = "") -> None:
        self._stream = stream
        self._prefix = f"{label}: " if label else ""
        self._pace = Pace()
        self._last = 0.0

    def _tell(self, event: Event) -> None:
        inner = "  " if event.kind in ("alert", "step", "ended") else ""
        print(f"{self._prefix}{inner}{event.text}", file=self._stream, flush=True)

    def run_begins(self, run_dir: Path, config: CanaryConfig) -> None:
        """Says what runs, and where its record goes."""
        self._tell(Event("run", figures.headline(config)))
        self._tell(Event("run", f"record: {run_dir}"))

    def warned(self, text: str) -> None:
        """What a user should know before anything starts."""
        self._tell(Event("note", f"note: {printable(text)}"))

    def launch_begins(self, kind: Kind, index: int, steps: int | None) -> None:
        """Says what the launch is for."""
        self._pace.begin(kind, steps)
        self._last = time.monotonic()
        length = "the whole training" if steps is None else f"{steps} steps"
        self._tell(Event("launch", f"{kind}: {length}, {figures.PURPOSE[kind]}"))

    def step_ended(self, kind: Kind, row: Row) -> None:
        """A line every five seconds."""
        self._pace.add(row)
        for alert in row.get("alerts") or ():
            self._tell(Event("alert", printable(alert_words(alert))))
        if time.monotonic() - self._last >= LINE_EVERY_S:
            self._last = time.monotonic()
            self._tell(Event("step", f"step {figures.count(self._pace)} · {self._figures()}"))

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
        words = f"{result.status} after {self._pace.done} steps, {seconds:.1f} s"
        self._tell(Event("ended", words))

    def waiting(self) -> None:
        """Nothing to say."""


class JsonLines(PlainLines):
    """The same lines for another program: a JSON object each."""

    def _tell(self, event: Event) -> None:
        print(jsonio.dumps(asdict(event)), file=self._stream, flush=True)
