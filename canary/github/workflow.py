"""What a job says to its runner: outputs, step summary, notices. No text of a record can become a
command of the workflow or another output."""

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
"""Bytes; GitHub drops a step's summary of more than 1 MiB as a whole."""


@dataclass(frozen=True)
class Job:
    """The files and the stream by which a job speaks; None outside GitHub."""

    stream: TextIO
    outputs: Path | None = None
    summary: Path | None = None

    def say(self, level: Level, text: str) -> None:
        """A line on the job's page; on a terminal a plain line."""
        flat = log_line(text)
        if self.outputs is None and self.summary is None:
            print(f"canary: {flat}", file=self.stream, flush=True)
            return
        print(f"::{level} title=RLHF Canary::{escaped(flat)}", file=self.stream, flush=True)

    def line(self, text: str) -> None:
        """A line of the log that is no command, whatever it holds."""
        print(log_line(text), file=self.stream, flush=True)

    def set_outputs(self, values: Mapping[str, str]) -> None:
        """Outputs of the step, each behind a delimiter that no value can guess.

        Raises:
            MachineError: they cannot be written, and who reads them would find no verdict.
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
        """Adds to the step's summary, cut under GitHub's limit. One that cannot be written is a
        warning: comment and status say the same."""
        if self.summary is None:
            return
        try:
            self._add_summary(self.summary, markdown)
        except OSError as error:
            self.say("warning", f"the step summary cannot be written: {error.strerror}")

    def _add_summary(self, summary: Path, markdown: str) -> None:
        there = summary.stat().st_size if summary.exists() else 0
        data = markdown.encode()
        room = LARGEST_SUMMARY - there - len(CUT_HERE.encode())
        if len(data) > room:
            data = data[: max(0, room)].decode(errors="ignore").encode() + CUT_HERE.encode()
        with summary.open("ab") as stream:
            stream.write(data.rstrip(b"\n") + b"\n\n")


def escaped(text: str) -> str:
    """A text as the message of a workflow command (actions/toolkit, command.ts, escapeData)."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
