"""A run on a terminal: a few lines, redrawn in place.

Drawn without rich's live display: that takes 1 ms of CPU time per redraw instead of 0.07, and a
thread.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.cells import cell_len, set_cell_size
from rich.color import ColorSystem
from rich.console import Console
from rich.style import Style

from canary.config.schema import CanaryConfig
from canary.errors import counted, printable
from canary.protocol.job import Listener, Result
from canary.record.alerts import alert_words
from canary.record.step_row import Row
from canary.runner.display import figures
from canary.runner.display.figures import Pace

REDRAWS_PER_S = 8
BAR_CELLS = 24
NARROWEST = 10
"""The panel is drawn at least this many columns wide."""
SEVERITY_STYLES = {"critical": "bold red", "high": "red", "medium": "yellow", "low": "cyan"}
PHASE_STYLES = ("cyan", "magenta", "blue", "yellow", "green", "red")
PHASE_CELLS = "█▓▒░"
"""Used in turn, so that neighbours differ also without colours."""
SEPARATOR = " · "

Piece = tuple[str, str]
"""A text and its style."""
Line = list[Piece]


def wrapped(pieces: Sequence[Piece], width: int, separator: str = SEPARATOR) -> list[Line]:
    """Return lines of at most `width` columns. Only a piece wider than a line is cut."""
    lines: list[Line] = []
    free = 0
    for text, style in pieces:
        if lines and len(separator) + cell_len(text) <= free:
            lines[-1] += [(separator, "dim"), (text, style)]
            free -= len(separator) + cell_len(text)
        else:
            shown = fitted(text, width)
            lines.append([(shown, style)])
            free = width - cell_len(shown)
    return lines


def fitted(text: str, width: int) -> str:
    """Return `text` on one line of at most `width` columns, without control characters."""
    clean = printable(text)
    return clean if cell_len(clean) <= width else set_cell_size(clean, width - 1) + "…"


def phase_bar(parts: Sequence[tuple[str, float]], cells: int) -> Line:
    """Return a bar of `cells` columns with a section for each phase's share."""
    line: Line = []
    drawn, total = 0, 0.0
    for index, (_, share) in enumerate(parts):
        total += share
        upto = min(cells, round(cells * total))
        line.append((PHASE_CELLS[index % len(PHASE_CELLS)] * (upto - drawn), _style(index)))
        drawn = upto
    return [piece for piece in line if piece[0]] + [(" " * (cells - drawn), "")]


def _style(index: int) -> str:
    return PHASE_STYLES[index % len(PHASE_STYLES)]


def panel_lines(pace: Pace, width: int, name: str = "", status: str = "") -> list[Line]:
    """Return the whole panel of a launch, in lines of at most `width` columns."""
    width = max(NARROWEST, width)
    lines = wrapped(_head(pace, width, name, status), width, " ")
    lines += wrapped([(part, "") for part in figures.speed(pace)], width)
    parts = figures.phase_parts(pace)
    if parts:
        names = [(text, _style(index)) for index, text in enumerate(figures.phase_words(parts))]
        bar = phase_bar(parts, min(BAR_CELLS, width))
        beside = wrapped(names, width - BAR_CELLS - 2, "  ") if width >= 3 * BAR_CELLS else []
        if len(beside) == 1:
            lines.append([*bar, ("  ", ""), *beside[0]])
        else:
            lines += [bar, *wrapped(names, width, "  ")]
    lines += wrapped([(part, "") for part in figures.machine(pace)], width)
    lines += wrapped([(part, "") for part in figures.learning(pace)], width)
    return lines + _alerts(pace, width)


def _head(pace: Pace, width: int, name: str, status: str) -> Line:
    steps = max(1, pace.steps or 0)
    cells = min(BAR_CELLS, width)
    filled = min(cells, round(cells * pace.done / steps))
    span = "timed" if pace.is_timed else "look"
    shown = f"{name} {span}" if name else span
    left = [] if status else [(part, "dim") for part in figures.time_left(pace)]
    return [
        (f"{shown:<8}", "bold"),
        ("━" * filled + "─" * (cells - filled), "green"),
        (figures.count(pace), ""),
        *left,
        *([(status, "bold red")] if status else []),
    ]


def _alerts(pace: Pace, width: int) -> list[Line]:
    if not pace.alerted:
        return []
    earlier = pace.alerted - len(pace.alerts)
    before = f"{counted(earlier, 'alert')} earlier"
    more: list[Line] = [[(fitted(before, width), "dim")]] if earlier else []
    return more + [
        [(fitted(alert_words(alert), width), SEVERITY_STYLES.get(alert["severity"], ""))]
        for alert in pace.alerts
    ]


@functools.cache
def _codes(style: str) -> str:
    """Return a style's terminal codes around the mark `|`."""
    return Style.parse(style).render("|", color_system=ColorSystem.STANDARD)


class LivePanel(Listener):
    """The panel of a run: progress, rates, phases, utilisation, metrics and the last alerts."""

    name = ""
    """Put before the span of the running launch."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._pace = Pace()
        self._open = False
        self._drawn = 0
        """Lines on the screen that the next redraw replaces."""
        self._moment = -1.0
        self._shown: tuple[Any, ...] = ()
        self._styled = console.color_system is not None and not console.no_color

    def run_begins(self, run_dir: Path, config: CanaryConfig) -> None:
        """Print what runs, and the folder of its record."""
        self._console.print(figures.headline(config), style="bold", highlight=False, markup=False)
        where = f"record: {run_dir}"
        self._console.print(where, style="dim", highlight=False, markup=False, soft_wrap=True)

    def warned(self, text: str) -> None:
        """Print a note before the first launch."""
        note = f"note: {printable(text)}"
        self._console.print(note, style="yellow", highlight=False, markup=False, soft_wrap=True)

    def launch_begins(self, index: int, steps: int | None) -> None:
        """Open the panel."""
        self._pace.begin(steps)
        self._drawn, self._open, self._shown = 0, True, ()
        self.waiting()

    def step_ended(self, row: Row) -> None:
        """Add the row; the next redraw shows it."""
        self._pace.add(row)
        self.waiting()

    def sampled(self, reading: Mapping[str, float]) -> None:
        """Keep the samples; the next redraw shows them."""
        self._pace.reading = reading

    def waiting(self) -> None:
        """Redraw if something changed, at most `REDRAWS_PER_S` times per second."""
        now = time.monotonic()
        if not self._open or 0 <= now - self._moment < 1 / REDRAWS_PER_S:
            return
        state = (self._pace.done, id(self._pace.reading), self._pace.done or int(now))
        if state != self._shown:
            self._shown, self._moment = state, now
            self._draw()

    def launch_ended(self, result: Result) -> None:
        """Leave the last state on the screen."""
        if self._open:
            self._draw("" if result.status == "completed" else result.status)
            self._open = False

    def erase(self) -> None:
        """Remove the panel from the screen."""
        if self._open and self._drawn:
            self._console.file.write(f"\x1b[{self._drawn}F\x1b[J")
            self._console.file.flush()
        self._drawn, self._open = 0, False

    def _draw(self, status: str = "") -> None:
        size = self._console.size
        lines = panel_lines(self._pace, size.width - 1, self.name, status)[: size.height - 1]
        up = f"\x1b[{self._drawn}F" if self._drawn else ""
        text = "".join(f"{self._rendered(line)}\x1b[K\n" for line in lines)
        self._console.file.write(f"{up}{text}\x1b[J")
        self._console.file.flush()
        self._drawn = len(lines)

    def _rendered(self, line: Line) -> str:
        if not self._styled:
            return "".join(text for text, _ in line)
        return "".join(_codes(style).replace("|", text) if style else text for text, style in line)
