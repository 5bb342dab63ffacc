"""Shows a run: one moving line on a terminal, a line every few seconds elsewhere."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TextIO

from canary.config.schema import CanaryConfig
from canary.errors import counted, printable
from canary.protocol.job import Listener, Result
from canary.record.alert import alert_words
from canary.record.step_row import Row
from canary.runner.display import figures
from canary.runner.display.figures import Pace

LINE_EVERY_S = 5.0
LOG_EVERY_S = 30.0
"""Between lines of a run in another process, or before the first step."""
REDRAW_EVERY_S = 0.125
SHOWN_PHASES = 3
STEP = "  step "
"""How the line of the newest step begins."""
ERASE = "\r\x1b[K"
"""Codes that empty the terminal's current line."""


class Progress(Listener):
    """Says what runs, where, how fast, and how it ended. When the reader of the stream is gone,
    the run goes on silently."""

    def __init__(self, stream: TextIO, *, moves: bool = False) -> None:
        """`moves`: the line of the steps is redrawn in place."""
        self._stream = stream
        self._moves = moves
        self._pace = Pace()
        self._last = 0.0
        self._unwatched = False
        self._gone = False

    def _write(self, text: str) -> None:
        if self._gone:
            return
        try:
            self._stream.write(text)
            self._stream.flush()
        except BrokenPipeError:
            self._gone = True

    def _print(self, text: str) -> None:
        """Print a line that stays."""
        self._write(f"{ERASE if self._moves else ''}{text}\n")

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
        unwatched = ", not watched; what it leaves is read" if self._unwatched else ""
        name = f"launch {index + 1}" if index else "training"
        self._print(f"{name}: {length}{unwatched}")

    def step_ended(self, row: Row) -> None:
        """Print alerts at once, and a line every five seconds if no line moves."""
        self._pace.add(row)
        for alert in row.get("alerts") or ():
            self._print(f"  {printable(alert_words(alert))}")
        if not self._moves and self._is_time(LINE_EVERY_S):
            self._print(self._line())

    def waiting(self) -> None:
        """Redraw the moving line. Where none moves, say seldom that no step has ended yet."""
        if self._moves and self._is_time(REDRAW_EVERY_S):
            width = shutil.get_terminal_size().columns - 1
            self._write(f"{ERASE}{self._line()[:width]}")
        elif not (self._moves or self._pace.done or self._unwatched) and self._is_time(LOG_EVERY_S):
            self._print(self._line())

    def _is_time(self, every_s: float) -> bool:
        now = time.monotonic()
        is_time = now - self._last >= every_s
        if is_time:
            self._last = now
        return is_time

    def _line(self) -> str:
        pace = self._pace
        largest = sorted(figures.phase_parts(pace), key=lambda part: -part[1])[:SHOWN_PHASES]
        phases = [f"{name} {100 * share:.0f}%" for name, share in largest]
        parts = figures.speed(pace) + figures.machine(pace) + figures.learning(pace)
        parts += [" ".join(phases)] if phases else []
        return " · ".join([f"{STEP}{figures.count(pace)}", *figures.time_left(pace), *parts])

    def sampled(self, reading: Mapping[str, float]) -> None:
        """Keep the samples for the next line."""
        self._pace.reading = reading

    def launch_ended(self, result: Result) -> None:
        """Print how the launch ended."""
        seconds = time.monotonic() - self._pace.started
        far = "" if self._unwatched else f" after {self._pace.done} steps"
        self._print(f"  {result.status}{far}, {seconds:.1f} s")


def listener_for(stream: TextIO, quiet: bool, *, moves: bool = True) -> Listener:
    """Return what shows a run on a stream; nothing is shown if `quiet`. `moves`: on a terminal, one
    line is redrawn; false if the terminal gets other output too."""
    if quiet:
        return Listener()
    return Progress(stream, moves=moves and _can_move(stream))


def steps_shown_on(stream: TextIO) -> Callable[[str], None]:
    """Return what takes each line that a run in another process prints, and shows its steps: those
    of a long run also where no line moves. That process may be of a stranger's checkout."""
    moves, last = _can_move(stream), time.monotonic()

    def show(line: str) -> None:
        nonlocal last
        line = printable(line.rstrip())
        is_step = line.startswith(STEP) and line[len(STEP)].isdigit()
        with contextlib.suppress(BrokenPipeError):
            if moves:
                width = shutil.get_terminal_size().columns - 1
                stream.write(ERASE + (line[:width] if is_step else ""))
            elif is_step and time.monotonic() - last >= LOG_EVERY_S:
                last = time.monotonic()
                stream.write(f"{line}\n")
            stream.flush()

    return show


def _can_move(stream: TextIO) -> bool:
    return stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"
