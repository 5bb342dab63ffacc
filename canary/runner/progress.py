"""What a run shows while it goes on: a live panel on a terminal, plain lines elsewhere."""

from __future__ import annotations

import shlex
import time
from pathlib import Path
from typing import Any, TextIO

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from canary.collect.alerts import alert_words
from canary.collect.jsonio import number
from canary.collect.summary import timed
from canary.config.schema import CanaryConfig
from canary.runner.base import Kind, Listener, Result

LINE_EVERY_S = 5.0
SHOWN_PHASES = 4


class Quiet:
    """Shows nothing."""

    def run_begins(self, run_dir: Path, config: CanaryConfig) -> None:
        """Not shown."""

    def launch_begins(self, kind: Kind, index: int, steps: int | None) -> None:
        """Not shown."""

    def step_ended(self, kind: Kind, row: dict[str, Any]) -> None:
        """Not shown."""

    def launch_ended(self, kind: Kind, result: Result) -> None:
        """Not shown."""

    def waiting(self) -> None:
        """Not shown."""


class Pace:
    """The state of the running launch, in words."""

    def __init__(self) -> None:
        self.kind: Kind = "measured"
        self.steps: int | None = None
        self.started = time.monotonic()
        self.rows: list[dict[str, Any]] = []

    def begin(self, kind: Kind, steps: int | None) -> None:
        """A launch starts."""
        self.kind, self.steps, self.rows = kind, steps, []
        self.started = time.monotonic()

    def seconds_left(self) -> float | None:
        """From the mean of the steps so far; unknown before the first, or where nobody said how
        many there are."""
        if not self.rows or self.steps is None:
            return None
        usual = self._usual()
        mean = sum(float(row["wall_s"]) for row in usual) / len(usual)
        return max(0.0, mean * (self.steps - len(self.rows)))

    def _usual(self) -> list[dict[str, Any]]:
        """The steps that nothing slowed down, as long as there are any."""
        return timed(self.rows, 0) or self.rows

    def figures(self) -> str:
        """Loss, tokens/s, step time, memory and time left of the newest row."""
        if not self.rows:
            return f"loading ({time.monotonic() - self.started:.0f} s)"
        row = self.rows[-1]
        recent = self._usual()[-10:]
        wall = sum(r["wall_s"] for r in recent)
        tokens = sum(r["input_tokens"] or 0 for r in recent)
        parts = [f"loss {number(row['loss']):.4g}"] if row["loss"] is not None else []
        if self.kind == "measured":
            parts.append(f"{1000 * wall / len(recent):.0f} ms/step")
            parts.append(f"{tokens / wall:,.0f} tokens/s")
        memory = row["peak_bytes"] or row["rss_bytes"]
        parts.append(f"{memory / 2**20:,.0f} MB")
        left = self.seconds_left()
        if left is not None:
            parts.append(f"{left:.0f} s left")
        return " · ".join(parts)

    def count(self) -> str:
        """Steps done, of how many."""
        of = "" if self.steps is None else f"/{self.steps}"
        return f"{len(self.rows)}{of}"

    def phases(self) -> str:
        """The largest phases of the last ten steps, in percent of their wall time."""
        recent = self._usual()[-10:]
        wall = sum(row["wall_s"] for row in recent)
        totals: dict[str, float] = {}
        for row in recent:
            for name, seconds in row["phases"].items():
                totals[name] = totals.get(name, 0.0) + seconds
        largest = sorted(totals.items(), key=lambda item: -item[1])[:SHOWN_PHASES]
        return "  ".join(f"{name} {100 * value / wall:.0f}%" for name, value in largest)


class PlainLines:
    """A line at each launch's start and end, and every few seconds between."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._pace = Pace()
        self._last = 0.0

    def _print(self, text: str) -> None:
        print(text, file=self._stream, flush=True)

    def run_begins(self, run_dir: Path, config: CanaryConfig) -> None:
        """Says what runs, and where its record goes."""
        self._print(headline(config))
        self._print(f"record: {run_dir}")

    def launch_begins(self, kind: Kind, index: int, steps: int | None) -> None:
        """Says what the launch is for."""
        self._pace.begin(kind, steps)
        self._last = time.monotonic()
        length = "the whole training" if steps is None else f"{steps} steps"
        self._print(f"{kind}: {length}, {PURPOSE[kind]}")

    def step_ended(self, kind: Kind, row: dict[str, Any]) -> None:
        """A line every five seconds."""
        self._pace.rows.append(row)
        for alert in row.get("alerts") or ():
            self._print(f"  {alert_words(alert)}")
        if time.monotonic() - self._last >= LINE_EVERY_S:
            self._last = time.monotonic()
            self._print(f"  step {self._pace.count()} · {self._pace.figures()}")

    def launch_ended(self, kind: Kind, result: Result) -> None:
        """How the launch ended."""
        seconds = time.monotonic() - self._pace.started
        self._print(f"  {result.status} after {len(self._pace.rows)} steps, {seconds:.1f} s")

    def waiting(self) -> None:
        """Nothing to say."""


PURPOSE: dict[Kind, str] = {
    "probe": "exact signals, not timed",
    "measured": "timed, light collection",
}


def headline(config: CanaryConfig) -> str:
    """One line: trainer, adapter, model, data; or the user's own command."""
    if config.training_type == "exec":
        return f"{config.name}: {shlex.join(config.command)}"
    adapter = f" + LoRA r={config.lora_r}" if config.use_peft else ""
    name = f"{config.name}: " if config.name else ""
    return (
        f"{name}{config.training_type.upper()}{adapter} of {config.model_name} "
        f"on {config.dataset_name}, {config.dtype}"
    )


class LivePanel:
    """A bar, the newest figures and the phases, redrawn in place."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._pace = Pace()
        self._live: Live | None = None

    def run_begins(self, run_dir: Path, config: CanaryConfig) -> None:
        """Says what runs, and where its record goes."""
        self._console.print(headline(config), style="bold", highlight=False)
        self._console.print(f"record: {run_dir}", style="dim", highlight=False, soft_wrap=True)

    def launch_begins(self, kind: Kind, index: int, steps: int | None) -> None:
        """Opens the panel."""
        self._pace.begin(kind, steps)
        self._live = Live(self._draw(), console=self._console, refresh_per_second=8)
        self._live.start()

    def step_ended(self, kind: Kind, row: dict[str, Any]) -> None:
        """Takes the row in; the next refresh shows it."""
        self._pace.rows.append(row)
        for alert in row.get("alerts") or ():
            style = "bold red" if alert["severity"] == "critical" else "yellow"
            self._console.print(alert_words(alert), style=style, markup=False, highlight=False)
        self.waiting()

    def waiting(self) -> None:
        """Redraws."""
        if self._live is not None:
            self._live.update(self._draw())

    def launch_ended(self, kind: Kind, result: Result) -> None:
        """Leaves the last state on the screen."""
        if self._live is not None:
            self._live.update(self._draw(result))
            self._live.stop()
            self._live = None

    def _draw(self, result: Result | None = None) -> Table:
        done, steps = len(self._pace.rows), max(1, self._pace.steps or 0)
        width = 24
        filled = min(width, round(width * done / steps))
        grid = Table.grid(padding=(0, 1))
        bar = Text("━" * filled, style="green") + Text("━" * (width - filled), style="dim")
        status = "" if result is None or result.status == "completed" else f" {result.status}"
        grid.add_row(f"{self._pace.kind:<8}", bar, f"{self._pace.count()}{status}")
        grid.add_row("", Text(""), Text(self._pace.figures()))
        if self._pace.rows and self._pace.kind == "measured":
            grid.add_row("", Text(""), Text(self._pace.phases(), style="dim"))
        return grid


class WhileHeard:
    """Passes events on until nobody reads them any more; the run goes on without a word."""

    def __init__(self, listener: Listener) -> None:
        self.inner: Listener = listener

    def _tell(self, event: str, *arguments: Any) -> None:
        try:
            getattr(self.inner, event)(*arguments)
        except BrokenPipeError:
            self.inner = Quiet()

    def run_begins(self, run_dir: Path, config: CanaryConfig) -> None:
        """Passed on."""
        self._tell("run_begins", run_dir, config)

    def launch_begins(self, kind: Kind, index: int, steps: int | None) -> None:
        """Passed on."""
        self._tell("launch_begins", kind, index, steps)

    def step_ended(self, kind: Kind, row: dict[str, Any]) -> None:
        """Passed on."""
        self._tell("step_ended", kind, row)

    def launch_ended(self, kind: Kind, result: Result) -> None:
        """Passed on."""
        self._tell("launch_ended", kind, result)

    def waiting(self) -> None:
        """Passed on."""
        self._tell("waiting")


def listener_for(stream: TextIO, quiet: bool, *, plain: bool = False) -> Listener:
    """The live panel on a terminal, lines elsewhere or where something else writes to it too
    (`plain`), nothing when quiet."""
    if quiet:
        return Quiet()
    console = Console(file=stream)
    live = console.is_terminal and not plain
    return WhileHeard(LivePanel(console) if live else PlainLines(stream))
