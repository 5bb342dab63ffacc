"""Show a run: a live panel on a terminal, plain lines elsewhere."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO, cast

from rich.console import Console

from canary.config.schema import CanaryConfig
from canary.errors import counted, printable
from canary.protocol.job import SHOWN, Listener, Result
from canary.record.alerts import alert_words
from canary.record.step_row import Row
from canary.runner.display import figures
from canary.runner.display.figures import Pace
from canary.runner.display.panel import LivePanel


class Quiet(Listener):
    """Shows nothing."""


class UntilClosed:
    """Passes events on until their reader is gone (BrokenPipeError); the run goes on silently."""

    def __init__(self, listener: Listener) -> None:
        self.inner: Listener = listener

    def __getattr__(self, event: str) -> Any:
        return functools.partial(self._send, event)

    def _send(self, event: str, *arguments: Any) -> None:
        try:
            getattr(self.inner, event)(*arguments)
        except BrokenPipeError:
            self.inner = Quiet()


@dataclass(frozen=True)
class Screen:
    """Where a run in another process shows its progress: an open file of this process."""

    file: int
    lines: bool = False
    """Lines for a log, instead of a panel."""

    def environment(self, name: str) -> dict[str, str]:
        """Return the variable for a run. `name`: which run it is, as the panel shows it; before
        each line, which then is one of a step or an alert."""
        return {SHOWN: f"{self.file} {'lines' if self.lines else 'panel'} {name}"}


def screen_of(stream: TextIO, quiet: bool) -> Screen | None:
    """Return the screen of a terminal, for runs in other processes; None elsewhere or if `quiet`.

    Their standard streams take its number: hence another one.
    """
    live = not quiet and _is_live(Console(file=stream))
    return Screen(os.dup(stream.fileno())) if live else None


def listener_for(stream: TextIO, quiet: bool, *, plain: bool = False) -> Listener:
    """Return the live panel for a terminal, plain lines elsewhere, nothing if `quiet`. `plain`: the
    terminal gets other output too. Another canary program that started this run says where it is
    shown (`Screen`)."""
    given = os.environ.pop(SHOWN, "")
    if given:
        file, form, name = given.split(" ", 2)
        screen = os.fdopen(int(file), "w", encoding="utf-8")
        inner = PlainLines(screen, name) if form == "lines" else CampaignPanel(screen, name)
        return cast(Listener, UntilClosed(inner))
    if quiet:
        return Quiet()
    console = Console(file=stream)
    live = _is_live(console) and not plain
    return cast(Listener, UntilClosed(LivePanel(console) if live else PlainLines(stream)))


LINE_EVERY_S = 5.0
SHOWN_PHASES = 3


class PlainLines(Listener):
    """Lines for a log. With `name`, only those of steps and alerts, behind it."""

    def __init__(self, stream: TextIO, name: str = "") -> None:
        self._stream = stream
        self._name = name
        self._pace = Pace()
        self._last = 0.0
        self._unwatched = False

    def _print(self, text: str) -> None:
        if not self._name:
            print(text, file=self._stream, flush=True)

    def _print_inner(self, text: str) -> None:
        """Print a line of a step or an alert."""
        name = f"{self._name}: " if self._name else ""
        print(f"  {name}{text}", file=self._stream, flush=True)

    def run_begins(self, run_dir: Path, config: CanaryConfig) -> None:
        """Print what runs, and the folder of its record."""
        self._print(figures.headline(config))
        self._print(f"record: {run_dir}")
        self._unwatched = config.imports is not None

    def warned(self, text: str) -> None:
        """Print a note before the first launch."""
        self._print(f"note: {printable(text)}")

    def launch_begins(self, index: int, steps: int | None) -> None:
        """Print the launch's length."""
        self._pace.begin(steps)
        self._last = time.monotonic()
        length = "the whole training" if steps is None else counted(steps, "step")
        unwatched = f", {figures.UNWATCHED}" if self._unwatched else ""
        name = f"launch {index + 1}" if index else "training"
        self._print(f"{name}: {length}{unwatched}")

    def step_ended(self, row: Row) -> None:
        """Print alerts at once, and a line every five seconds."""
        self._pace.add(row)
        for alert in row.get("alerts") or ():
            self._print_inner(printable(alert_words(alert)))
        if time.monotonic() - self._last >= LINE_EVERY_S:
            self._last = time.monotonic()
            self._print_inner(f"step {figures.count(self._pace)} · {self._figures()}")

    def _figures(self) -> str:
        pace = self._pace
        largest = sorted(figures.phase_parts(pace), key=lambda part: -part[1])[:SHOWN_PHASES]
        phases = figures.phase_words(largest)
        parts = figures.speed(pace) + figures.machine(pace) + figures.learning(pace)
        return " · ".join(parts + ([" ".join(phases)] if phases else []) + figures.time_left(pace))

    def sampled(self, reading: Mapping[str, float]) -> None:
        """Keep the samples for the next line."""
        self._pace.reading = reading

    def launch_ended(self, result: Result) -> None:
        """Print how the launch ended."""
        seconds = time.monotonic() - self._pace.started
        far = "" if self._unwatched else f" after {self._pace.done} steps"
        self._print(f"  {result.status}{far}, {seconds:.1f} s")


class CampaignPanel(LivePanel):
    """The panel of a campaign's running launch; it goes when the launch ends."""

    def __init__(self, stream: TextIO, name: str = "") -> None:
        """`name`: which run it is, and the time left of the whole campaign."""
        super().__init__(Console(file=stream))
        self.name = name

    def run_begins(self, run_dir: Path, config: CanaryConfig) -> None:
        """Not shown."""

    def warned(self, text: str) -> None:
        """Not shown."""

    def launch_ended(self, result: Result) -> None:
        """Remove the panel."""
        self.erase()


def campaign_panel(stream: TextIO, quiet: bool) -> CampaignPanel | None:
    """Return the panel for a campaign on a terminal; None elsewhere or if `quiet`."""
    live = not quiet and _is_live(Console(file=stream))
    return CampaignPanel(stream) if live else None


def _is_live(console: Console) -> bool:
    """Whether a panel can be redrawn there."""
    return console.is_terminal and not console.is_dumb_terminal
