"""The file to which a training process writes its rows."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TextIO

from canary.record import jsonio
from canary.record.step_row import Row


class StepFile:
    """Appends one JSON line per step in one write call, so that a kill loses no finished step."""

    def __init__(self, path: Path) -> None:
        self._stream: TextIO = path.open("a", encoding="utf-8")

    def append(self, row: Row) -> None:
        """Write one row and flush it to the kernel.

        Raises:
            OSError: the disk is full.
        """
        self._stream.write(jsonio.dumps(row) + "\n")
        self._stream.flush()

    def close(self) -> None:
        """Close the file; on a full disk, drop unwritten content."""
        with contextlib.suppress(OSError):
            self._stream.close()
