"""A job's outputs, step summary and notices. Text from a record cannot become a workflow command
or another output."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TextIO

from canary.errors import not_written
from canary.github.section import CUT_HERE
from canary.report.escape import log_line

Level = Literal["notice", "warning", "error"]
LARGEST_SUMMARY = 1_000_000
"""Bytes; GitHub drops a step summary of more than 1 MiB completely."""


@dataclass(frozen=True)
class Job:
    """The job's log stream and its runner's files; the files are None outside GitHub."""

    stream: TextIO
    outputs: Path | None = None
    summary: Path | None = None

    def say(self, level: Level, text: str, place: tuple[str, int] | None = None) -> None:
        """Print a message for the job's page, and for the line of a file at which GitHub shows it;
        outside GitHub, a plain line."""
        flat = log_line(text)
        if self.outputs is None and self.summary is None:
            print(f"canary: {flat}", file=self.stream, flush=True)
            return
        at = f",file={_property(place[0])},line={place[1]}" if place else ""
        print(f"::{level} title=RLHF Canary{at}::{escaped(flat)}", file=self.stream, flush=True)

    def line(self, text: str) -> None:
        """Print a log line that cannot become a workflow command."""
        print(log_line(text), file=self.stream, flush=True)

    def set_outputs(self, values: Mapping[str, str]) -> None:
        """Set the step's outputs, with delimiters that no value can guess.

        Raises:
            MachineError: they cannot be written; later steps would get no verdict.
        """
        if self.outputs is None:
            return
        written = ""
        for name, value in values.items():
            delimiter = f"canary_{secrets.token_hex(16)}"
            written += f"{name}<<{delimiter}\n{log_line(value)}\n{delimiter}\n"
        try:
            with self.outputs.open("a", encoding="utf-8") as stream:
                stream.write(written)
        except OSError as error:
            raise not_written("the step's outputs", error) from error

    def add_summary(self, markdown: str) -> None:
        """Add to the step summary, within GitHub's limit. If that fails, only warn: comment and
        status say the same."""
        if self.summary is None:
            return
        data = markdown.encode()
        try:
            there = self.summary.stat().st_size if self.summary.exists() else 0
            room = LARGEST_SUMMARY - there - len(CUT_HERE.encode())
            if len(data) > room:
                data = data[: max(0, room)].decode(errors="ignore").encode() + CUT_HERE.encode()
            with self.summary.open("ab") as stream:
                stream.write(data.rstrip(b"\n") + b"\n\n")
        except OSError as error:
            self.say("warning", f"the step summary cannot be written: {error.strerror}")


def escaped(text: str) -> str:
    """Escape a workflow command's message (actions/toolkit, command.ts, escapeData)."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    """Escape a property of a workflow command (actions/toolkit, command.ts, escapeProperty)."""
    return escaped(log_line(text)).replace(":", "%3A").replace(",", "%2C")
