"""The listener that shows a run: a live panel on a terminal, plain lines elsewhere."""

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


class UntilClosed:
    """Passes events on until their reader is gone (BrokenPipeError); the run goes on silently."""

    def __init__(self, listener: Listener) -> None:
        self.inner: Listener = listener

    def _send(self, event: str, *arguments: Any) -> None:
        try:
            getattr(self.inner, event)(*arguments)
        except BrokenPipeError:
            self.inner = Quiet()

    def run_begins(self, run_dir: Path, config: CanaryConfig) -> None:
        self._send("run_begins", run_dir, config)

    def warned(self, text: str) -> None:
        self._send("warned", text)

    def launch_begins(self, kind: Kind, index: int, steps: int | None) -> None:
        self._send("launch_begins", kind, index, steps)

    def step_ended(self, kind: Kind, row: Row) -> None:
        self._send("step_ended", kind, row)

    def sampled(self, reading: Mapping[str, float]) -> None:
        self._send("sampled", reading)

    def launch_ended(self, kind: Kind, result: Result) -> None:
        self._send("launch_ended", kind, result)

    def waiting(self) -> None:
        self._send("waiting")


def listener_for(stream: TextIO, quiet: bool, *, plain: bool = False, label: str = "") -> Listener:
    """Return the live panel for a terminal, plain lines elsewhere, nothing if `quiet`. `plain`: the
    terminal gets other output too. `label` is put before the output. If another canary program
    follows this run (`EVENTS`), only that program gets the events."""
    follower = os.environ.pop(EVENTS, "")
    if follower:
        return UntilClosed(JsonLines(os.fdopen(int(follower), "w", encoding="utf-8")))
    if quiet:
        return Quiet()
    console = Console(file=stream)
    live = console.is_terminal and not console.is_dumb_terminal and not plain
    return UntilClosed(LivePanel(console, label) if live else PlainLines(stream, label))
