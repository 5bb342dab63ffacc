"""Who hears of a run while it goes on: a live panel on a terminal, plain lines elsewhere."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from rich.console import Console

from canary.config.schema import CanaryConfig
from canary.protocol.job import EVENTS, Kind, Listener, Result
from canary.record.step_row import Row
from canary.runner.display.lines import JsonLines, PlainLines
from canary.runner.display.panel import LivePanel


class Quiet:
    """Shows nothing."""

    def run_begins(self, run_dir: Path, config: CanaryConfig) -> None:
        """Not shown."""

    def warned(self, text: str) -> None:
        """Not shown."""

    def launch_begins(self, kind: Kind, index: int, steps: int | None) -> None:
        """Not shown."""

    def step_ended(self, kind: Kind, row: Row) -> None:
        """Not shown."""

    def sampled(self, reading: Mapping[str, float]) -> None:
        """Not shown."""

    def launch_ended(self, kind: Kind, result: Result) -> None:
        """Not shown."""

    def waiting(self) -> None:
        """Not shown."""


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

    def warned(self, text: str) -> None:
        """Passed on."""
        self._tell("warned", text)

    def launch_begins(self, kind: Kind, index: int, steps: int | None) -> None:
        """Passed on."""
        self._tell("launch_begins", kind, index, steps)

    def step_ended(self, kind: Kind, row: Row) -> None:
        """Passed on."""
        self._tell("step_ended", kind, row)

    def sampled(self, reading: Mapping[str, float]) -> None:
        """Passed on."""
        self._tell("sampled", reading)

    def launch_ended(self, kind: Kind, result: Result) -> None:
        """Passed on."""
        self._tell("launch_ended", kind, result)

    def waiting(self) -> None:
        """Passed on."""
        self._tell("waiting")


def listener_for(stream: TextIO, quiet: bool, *, plain: bool = False, label: str = "") -> Listener:
    """The live panel on a terminal, lines elsewhere or where something else writes to it too
    (`plain`), nothing when quiet. `label` goes before what is shown. Where another program of ours
    follows this run (`EVENTS`), it alone hears of it."""
    follower = os.environ.pop(EVENTS, "")
    if follower:
        return WhileHeard(JsonLines(os.fdopen(int(follower), "w", encoding="utf-8")))
    if quiet:
        return Quiet()
    console = Console(file=stream)
    live = console.is_terminal and not console.is_dumb_terminal and not plain
    return WhileHeard(LivePanel(console, label) if live else PlainLines(stream, label))
