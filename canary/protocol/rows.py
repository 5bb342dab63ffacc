"""The rows that a training process writes, a line a step."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TextIO

from canary.record import jsonio
from canary.record.step_row import Row


class StepFile:
    """Appends a JSON line a step, in one write call each, so that a kill loses no finished step."""

    def __init__(self, path: Path) -> None:
        self._stream: TextIO = path.open("a", encoding="utf-8")

    def append(self, row: Row) -> None:
        """Writes one row and hands it to the kernel.

        Raises:
            OSError: the disk is full.
        """
        self._stream.write(jsonio.dumps(row) + "\n")
        self._stream.flush()

    def close(self) -> None:
        """Closes the file; unwritten content of a full disk is given up."""
        with contextlib.suppress(OSError):
            self._stream.close()
