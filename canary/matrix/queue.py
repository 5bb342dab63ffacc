"""Cells in the queue of a cluster: what is common to Slurm and Ray.

The cluster shares the folder of the matrix. A job runs the try's script, which takes the try's lock
and leaves if the try has ended. So a job that is submitted or started twice does no harm. All
that a killed matrix must find again is which of its jobs still wait or run.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from canary.errors import MachineError
from canary.matrix.attempt import STOP_GRACE_S, Attempt
from canary.matrix.document import Queued

STUCK_S = 300.0
"""A job may run so much longer than its time limit before it is stopped."""
CANCEL_S = STOP_GRACE_S + 40.0


@dataclass(frozen=True)
class Seen:
    """What a queue says of a try."""

    phase: Literal["waits", "runs", "over"]
    reason: str = ""


class Queue(Protocol):
    """The queue of a cluster."""

    name: str
    most_waiting: int | None
    """Most tries that wait in it; None: all."""

    def submit(self, attempts: Sequence[Attempt]) -> Mapping[Path, str]:
        """Put tries into the queue; their scripts are written. Return why it did not take some, by
        their folder. A queue that does not answer may have taken them."""

    def look(self, attempts: Sequence[Attempt]) -> Mapping[Path, Seen]:
        """Return what it knows of these tries, by their folder. Tries of earlier processes are
        found, too.

        Raises:
            MachineError: it does not answer.
        """

    def stop(self, attempts: Sequence[Attempt]) -> None:
        """Remove tries from the queue, and end those that run.

        Raises:
            MachineError: it does not answer.
        """


@dataclass
class _Followed:
    attempt: Attempt
    since: float
    """When its present phase began."""
    seen: Seen = Seen("waits")

    def is_now(self, seen: Seen, now: float) -> None:
        """Note what the queue says."""
        if seen.phase != self.seen.phase:
            self.since = now
        self.seen = seen


@dataclass
class QueueLauncher:
    """Starts tries through a queue."""

    queue: Queue
    keys: Queued
    silent: str = ""
    """Why the queue does not answer; "" if it does."""
    _going: dict[str, _Followed] = field(default_factory=dict)
    _new: list[Attempt] = field(default_factory=list)
    _looked: float = 0.0

    def start(self, attempt: Attempt) -> bool:
        """Take a try for the next submission."""
        most, most_waiting = self.keys.at_once, self.queue.most_waiting
        if most is not None and len(self._going) >= most:
            return False
        if most_waiting is not None and len(self.queued()) >= most_waiting:
            return False
        try:
            attempt.write_script()
        except OSError as error:
            raise MachineError(f"cannot start: {attempt.folder}: {error.strerror}") from error
        self._going[attempt.cell] = _Followed(attempt, time.monotonic())
        self._new.append(attempt)
        return True

    def adopt(self, attempt: Attempt) -> bool:
        """Follow a try if the queue knows it."""
        seen = self.queue.look([attempt]).get(attempt.folder)
        if seen is None or (seen.phase == "over" and not attempt.has_begun()):
            return False  # It starts anew.
        self._going[attempt.cell] = _Followed(attempt, time.monotonic(), seen)
        return True

    def poll(self) -> Iterator[Attempt]:
        """Submit what is new, and yield tries that ended or are lost."""
        now = time.monotonic()
        looks = now - self._looked >= self.keys.poll
        if self._new and (looks or not self.silent):
            yield from self._submit()
        if not self._going or not looks:
            return
        self._looked = now
        seen = self._seen([one.attempt for one in self._going.values()])
        for cell, one in [*self._going.items()]:
            if seen is not None and one.attempt not in self._new:
                one.is_now(seen.get(one.attempt.folder, Seen("over", "the job is gone")), now)
            if self._is_over(one, now):
                del self._going[cell]
                yield one.attempt

    def _seen(self, attempts: Sequence[Attempt]) -> Mapping[Path, Seen] | None:
        """Return what the queue says; None if it does not answer."""
        try:
            seen = self.queue.look(attempts)
        except MachineError as error:
            self.silent = error.message
            return None
        self.silent = ""
        return seen

    def _submit(self) -> Iterator[Attempt]:
        """Submit what is new. What a queue refuses that answers is lost. If it does not answer, the
        same is submitted again: a job that was taken after all runs once."""
        refused = self.queue.submit(self._new)
        lost = [one for one in self._new if one.folder in refused]
        if lost and self._seen(lost) is None:
            self._new = lost
            return
        self._new = []
        for attempt in lost:
            del self._going[attempt.cell]
            attempt.give_up(refused[attempt.folder])
            yield attempt

    def _is_over(self, one: _Followed, now: float) -> bool:
        """Return whether a try ended or is lost; give up a lost one."""
        attempt, seen, since = one.attempt, one.seen, now - one.since
        if attempt.ended() is not None:
            if seen.phase == "waits":  # A second job of it.
                self._stop(attempt)
            return True
        words, stuck = "", since >= attempt.limit_s + STUCK_S
        if seen.phase == "over" and since >= self.keys.late:
            # A machine that the queue believes dead may still run it, and no other must then.
            if stuck or not attempt.is_running():
                words = f"{self.queue.name}: {seen.reason}; it left no exit code"
        elif seen.phase == "waits" and since >= self.keys.longest_wait * 60:
            # A queue that is silent may have begun what it was given.
            if not self.silent or attempt in self._new:
                words = f"it waited {self.keys.longest_wait:g} minutes in the queue of "
                words += f"{self.queue.name}: {self.silent or seen.reason}"
        elif seen.phase == "runs" and stuck:
            words = f"it still runs after its {attempt.limit_s / 60:g} minutes: {seen.reason}"
        if words:
            if seen.phase != "over":
                self._stop(attempt)
            attempt.give_up(words)
        return bool(words)

    def _stop(self, attempt: Attempt) -> None:
        """Stop a try that is over for us. If the queue does not answer, its script still finds that
        it is over, and leaves."""
        self._new = [one for one in self._new if one != attempt]
        with contextlib.suppress(MachineError):
            self.queue.stop([attempt])

    def queued(self) -> Mapping[str, str]:
        """Return the cells in the queue, with the reason."""
        waiting = (one for one in self._going.values() if one.seen.phase == "waits")
        return {one.attempt.cell: self.silent or one.seen.reason for one in waiting}

    def cancel(self) -> None:
        """Stop all tries, and wait for their end."""
        going = [one.attempt for one in self._going.values()]
        self._new.clear()
        deadline = time.monotonic() + CANCEL_S
        try:
            if going:
                self.queue.stop(going)
            while going and time.monotonic() < deadline:
                if all(one.phase != "runs" for one in self.queue.look(going).values()):
                    return
                time.sleep(min(0.5, self.keys.poll))
        except MachineError as error:
            raise MachineError(
                f"{self.queue.name} did not stop all cells: {error.message}",
                "start the same matrix again to follow them",
            ) from error

    def wait(self, seconds: float) -> None:
        """Wait for the next look."""
        time.sleep(min(seconds, self.keys.poll))
