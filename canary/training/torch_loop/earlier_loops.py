"""Loops that a process began before the one that is recorded: the probe leaves out the same."""

from __future__ import annotations

from pathlib import Path

from canary.protocol.job import Job

ALL = 10**9
"""A Trainer or a Recorder is recorded: every loop is left out."""


class EarlierLoops:
    """Their number, in a file of the run."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._file = Path(job.scratch_dir).parent / "earlier_loops"

    def leave(self, count: int) -> None:
        """Let later launches leave out so many loops."""
        if self._job.kind == "measured":
            self._file.write_text(str(count))

    def to_leave_out(self) -> int:
        """Return how many loops this launch leaves out."""
        if self._job.launch == 0:
            return 0
        try:
            return int(self._file.read_text())
        except (OSError, ValueError):
            return 0
