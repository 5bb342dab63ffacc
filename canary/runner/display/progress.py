"""Show a run: a live panel on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import functools
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, TextIO, cast

from rich.console import Console

from canary.config.schema import CanaryConfig
from canary.errors import printable
from canary.protocol.job import EVENTS, Listener, Result
from canary.record import jsonio
from canary.record.alerts import alert_words
from canary.record.step_row import Row
from canary.runner.display import figures
from canary.runner.display.pace import Pace
from canary.runner.display.panel import LivePanel


class Quiet:
    """Shows nothing."""

    def run_begins(self, run_dir: Path, config: CanaryConfig) -> None:
        """Not shown."""

    def warned(self, text: str) -> None:
        """Not shown."""

    def launch_begins(self, index: int, steps: int | None) -> None:
        """Not shown."""

    def step_ended(self, row: Row) -> None:
        """Not shown."""

    def sampled(self, reading: Mapping[str, float]) -> None:
        """Not shown."""

    def launch_ended(self, result: Result) -> None:
        """Not shown."""

    def waiting(self) -> None:
        """Not shown."""


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


def listener_for(stream: TextIO, quiet: bool, *, plain: bool = False) -> Listener:
    """Return the live panel for a terminal, plain lines elsewhere, nothing if `quiet`. `plain`: the
    terminal gets other output too. If another canary program follows this run (`EVENTS`), only that
    program gets the events."""
    follower = os.environ.pop(EVENTS, "")
    if follower:
        lines = JsonLines(os.fdopen(int(follower), "w", encoding="utf-8"))
        return cast(Listener, UntilClosed(lines))
    if quiet:
        return Quiet()
    console = Console(file=stream)
    live = console.is_terminal and not console.is_dumb_terminal and not plain
    return cast(Listener, UntilClosed(LivePanel(console) if live else PlainLines(stream)))


LINE_EVERY_S = 5.0
SHOWN_PHASES = 3


@dataclass(frozen=True)
class Event:
    """One line for another program."""

    kind: Literal["run", "note", "launch", "alert", "step", "ended", "call"]
    text: str
    """For people; no program reads it."""
    call: str = ""
    """For a panel, with `kind` "call": the listener's method, and its plain arguments."""
    arguments: tuple[Any, ...] = ()


class PlainLines:
    """Lines for a log."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._pace = Pace()
        self._last = 0.0
        self._unwatched = False

    def _print(self, event: Event) -> None:
        inner = "  " if event.kind in ("alert", "step", "ended") else ""
        print(f"{inner}{event.text}", file=self._stream, flush=True)

    def run_begins(self, run_dir: Path, config: CanaryConfig) -> None:
        """Print what runs, and the folder of its record."""
        self._print(Event("run", figures.headline(config)))
        self._print(Event("run", f"record: {run_dir}"))
        self._unwatched = config.imports is not None

    def warned(self, text: str) -> None:
        """Print a note before the first launch."""
        self._print(Event("note", f"note: {printable(text)}"))

    def launch_begins(self, index: int, steps: int | None) -> None:
        """Print the launch's length."""
        self._pace.begin(steps)
        self._last = time.monotonic()
        length = (
            "the whole training" if steps is None else f"{steps} step{'' if steps == 1 else 's'}"
        )
        unwatched = f", {figures.UNWATCHED}" if self._unwatched else ""
        name = f"launch {index + 1}" if index else "training"
        self._print(Event("launch", f"{name}: {length}{unwatched}"))

    def step_ended(self, row: Row) -> None:
        """Print alerts at once, and a line every five seconds."""
        self._pace.add(row)
        for alert in row.get("alerts") or ():
            self._print(Event("alert", printable(alert_words(alert))))
        if time.monotonic() - self._last >= LINE_EVERY_S:
            self._last = time.monotonic()
            self._print(Event("step", f"step {figures.count(self._pace)} · {self._figures()}"))

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
        words = f"{result.status}{far}, {seconds:.1f} s"
        self._print(Event("ended", words))

    def waiting(self) -> None:
        """Print nothing."""


class JsonLines(PlainLines):
    """The same lines for another program, each a JSON object, and the calls that they come from."""

    def _print(self, event: Event) -> None:
        print(jsonio.dumps(asdict(event)), file=self._stream, flush=True)

    def _pass_on(self, call: str, *arguments: Any) -> None:
        self._print(Event("call", "", call, arguments))

    def launch_begins(self, index: int, steps: int | None) -> None:
        """Print and pass on."""
        super().launch_begins(index, steps)
        self._pass_on("launch_begins", index, steps)

    def step_ended(self, row: Row) -> None:
        """Print and pass on."""
        super().step_ended(row)
        self._pass_on("step_ended", row)

    def sampled(self, reading: Mapping[str, float]) -> None:
        """Pass on."""
        super().sampled(reading)
        self._pass_on("sampled", dict(reading))

    def launch_ended(self, result: Result) -> None:
        """Print and pass on."""
        super().launch_ended(result)
        self._pass_on("launch_ended", None)


class CampaignPanel(LivePanel):
    """The panel of a campaign's running launch; it goes when the launch ends.

    `name` is set before each run: which one it is, and the time left of the whole campaign."""

    def run_begins(self, run_dir: Path, config: CanaryConfig) -> None:
        """Not shown."""

    def launch_ended(self, result: Result | None) -> None:
        """Remove the panel."""
        self.erase()

    def replay(self, event: Event) -> None:
        """Show an event of a run in another process, whose version may be another one."""
        calls = ("launch_begins", "step_ended", "sampled", "launch_ended")
        if event.kind == "call" and event.call in calls:
            with contextlib.suppress(AttributeError, KeyError, TypeError, ValueError):
                getattr(self, event.call)(*event.arguments)


def campaign_panel(stream: TextIO, quiet: bool) -> CampaignPanel | None:
    """Return the panel for a campaign on a terminal; None elsewhere or if `quiet`."""
    console = Console(file=stream)
    live = console.is_terminal and not console.is_dumb_terminal
    return CampaignPanel(console) if live and not quiet else None
