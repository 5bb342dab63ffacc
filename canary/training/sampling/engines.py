"""What models of child processes sample, such as an engine behind a pipe.

A child of `multiprocessing` has the hooks too: by its fork, or because they start with each Python
of the command. It appends what it draws to a file of its own in the launch's scratch folder. The
process that trains reads these files when an update begins.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from canary.record import jsonio
from canary.training.sampling.samples import Sampled

NAME = "engine-{pid}.jsonl"
MOST_BYTES = 1 << 26
"""Of one file; what a child draws after that is not followed."""
MOST_ROWS = 4096
"""Sequences that wait for the update that trains on them; the oldest are dropped."""
UNREADABLE = (OSError, ValueError, KeyError, TypeError, IndexError, OverflowError, RecursionError)
"""What a file of a child may raise that holds something else."""


class EngineFile:
    """The file of a child process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stream: TextIO | None = None
        self._bytes = 0

    def began(self, number: int, rows: Sequence[Sampled]) -> None:
        """Tell that rows of prompts are extended from here on."""
        prompts = [one.prompt for one in rows]
        self._append({"stream": number, "prompts": prompts, "training": rows[0].training})

    def drew(
        self, number: int, rows: Sequence[Sampled], drawn: Sequence[tuple[int, float, float]]
    ) -> None:
        """Tell a draw: token, log-probability, and that after top-k or top-p, one per row. It is
        final only if no `went_on` follows."""
        one = rows[0]
        told = {"temperature": one.temperature, "penalised": one.penalised, "at_one": one.at_one}
        self._append({"stream": number, "drawn": drawn, **told})

    def went_on(self, number: int, added: Sequence[tuple[int, int, float, float]]) -> None:
        """Tell which rows went on: row, token, log-probability, and that after top-k or top-p."""
        self._append({"stream": number, "added": added})

    def _append(self, event: dict[str, Any]) -> None:
        if self._bytes > MOST_BYTES:
            return
        if self._stream is None:
            path = self._folder / NAME.format(pid=os.getpid())
            self._stream = path.open("a", encoding="utf-8")
        text = json.dumps(event) + "\n"
        self._bytes += len(text)
        self._stream.write(text)
        self._stream.flush()


@dataclass
class _Rows:
    rows: list[Sampled]
    ended: set[int] = field(default_factory=set)
    pending: list[tuple[int, float, float]] = field(default_factory=list)

    def take(self, event: dict[str, Any]) -> None:
        """Take an event of the stream."""
        if "added" in event:
            self.pending = []
            went_on = {int(row) for row, *_ in event["added"]}
            self.ended |= set(range(len(self.rows))) - went_on
            for row, token, log_prob, cut in event["added"]:
                self.rows[int(row)].add(int(token), float(log_prob), float(cut))
        elif "drawn" in event:
            self.pending = [tuple(one) for one in event["drawn"]]
            for one in self.rows:
                one.temperature = event["temperature"]
                one.penalised, one.at_one = event["penalised"], event["at_one"]

    def finished(self) -> list[Sampled]:
        """Return the rows, with the last draw."""
        for row, (token, log_prob, cut) in enumerate(self.pending):
            if row not in self.ended:
                self.rows[row].add(int(token), float(log_prob), float(cut))
        self.pending = []
        return [one for one in self.rows if one.tokens]


class EngineFiles:
    """Reads what the child processes of this one append."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[Path, int] = {}
        self._open: dict[tuple[str, int], _Rows] = {}
        self._waiting: list[Sampled] = []

    def taken(self) -> list[Sampled]:
        """Return what was sampled and not yet trained on."""
        own = NAME.format(pid=os.getpid())
        for path in sorted(self._folder.glob(NAME.format(pid="*"))):
            if path.name != own:
                with contextlib.suppress(*UNREADABLE):
                    self._take(path)
        for key in [*self._open]:
            self._finish(key)
        self._waiting = self._waiting[-MOST_ROWS:]
        return list(self._waiting)

    def _finish(self, key: tuple[str, int]) -> None:
        with contextlib.suppress(*UNREADABLE):
            self._waiting += self._open.pop(key).finished()

    def trained(self, found: Sequence[Sampled]) -> None:
        """Forget sequences that were trained on."""
        done = {id(one) for one in found}
        self._waiting = [one for one in self._waiting if id(one) not in done]

    def _take(self, path: Path) -> None:
        # A pipe in its place would stop the training.
        with jsonio.open_regular(path, sys.maxsize) as stream:
            stream.seek(self._read.get(path, 0))
            data = stream.read(MOST_BYTES)
        whole = data[: data.rfind(b"\n") + 1]
        self._read[path] = self._read.get(path, 0) + len(whole)
        for line in whole.splitlines():
            event = json.loads(line)
            key = path.name, int(event["stream"])
            if "prompts" in event:
                if len(self._open) >= MOST_ROWS:
                    self._finish(next(iter(self._open)))
                self._open[key] = _Rows([_begun(one, event) for one in event["prompts"]])
            elif key in self._open:
                self._open[key].take(event)


def _begun(prompt: Sequence[int], event: dict[str, Any]) -> Sampled:
    training = bool(event["training"])
    return Sampled(tuple(map(int, prompt)), [], [], training=training, elsewhere=True)
