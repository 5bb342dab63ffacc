"""Cells on this machine: each gets devices of the pool (`canary/machine/pool.py`). The process that
runs the try has the pool's open file and the try's lock as its input and output."""

from __future__ import annotations

import itertools
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from canary.errors import MachineError, UsageError, printable
from canary.machine.pool import FIRST_CORE, lock_byte, opened, pool_file
from canary.matrix.attempt import CPU, LOCK, STOP_GRACE_S, STOPPED, Attempt

LAST_S = 5.0
"""For the shell to end, after the command was killed."""
AGAIN_S = 0.2
"""Between two looks at a try of an earlier process, which tells nobody that it ends."""


@dataclass
class _Started:
    attempt: Attempt
    child: subprocess.Popen[bytes]
    ended: int
    """A file that can be read when the child ends."""


@dataclass
class LocalLauncher:
    """Starts tries on this machine."""

    cores: Sequence[int]
    """What may be used, by number."""
    gpus: Sequence[int]
    at_once: int | None
    locks: Path = field(default_factory=pool_file)
    """The file of the pool."""
    _going: dict[str, _Started] = field(default_factory=dict)

    def start(self, attempt: Attempt) -> bool:
        """Start a try if its devices are free."""
        if self.at_once is not None and len(self._going) >= self.at_once:
            return False
        self.require(attempt)
        try:
            return self._started(attempt)
        except OSError as error:
            what = error.filename or attempt.folder
            raise MachineError(f"cannot start: {what}: {error.strerror or error}") from error

    def _started(self, attempt: Attempt) -> bool:
        slots = opened(self.locks)
        try:
            gpus = _taken(slots, self.gpus, attempt.gpus, 0)
            if len(gpus) < attempt.gpus:
                return False
            cores = _taken(slots, self.cores, attempt.cores, FIRST_CORE)
            if len(cores) < attempt.cores:
                return False
            lock = attempt.open_lock()
            if lock is None:
                raise MachineError(f"another process holds {attempt.folder / LOCK}")
            try:
                attempt.begin()
                self._going[attempt.cell] = _spawned(attempt, slots, lock, cores, gpus)
            finally:
                os.close(lock)
        finally:
            os.close(slots)
        return True

    def require(self, attempt: Attempt) -> None:
        """Raise UsageError for a try that cannot run here."""
        if attempt.device not in (None, CPU):
            raise UsageError(
                f"it asks for the device {printable(str(attempt.device))}",
                "use launcher.kind: slurm or ray, or device: cpu",
            )
        if attempt.gpus and not self.gpus:
            raise UsageError("it asks for a GPU, and none may be used here", "use device: cpu")
        for count, own, what, hint in (
            (attempt.gpus, self.gpus, "GPUs", "lower ranks, or set launcher.devices"),
            (attempt.cores, self.cores, "cores", "lower ranks or launcher.cores"),
        ):
            if count > len(own):
                raise UsageError(f"it needs {count} {what}, and {len(own)} may be used", hint)

    def adopt(self, attempt: Attempt) -> bool:
        """Wait for a try of an earlier process while it runs; False: there is nothing to follow.

        A process may hold its try for longer than it may take.
        """
        deadline = time.monotonic() + attempt.limit_s + STOP_GRACE_S + LAST_S
        while attempt.is_running() and time.monotonic() < deadline:
            time.sleep(AGAIN_S)
        return False

    def poll(self) -> Iterator[Attempt]:
        """Yield tries that ended, or were lost."""
        for cell, one in [*self._going.items()]:
            if one.child.poll() is None:
                continue
            os.close(one.ended)
            del self._going[cell]
            one.attempt.give_up(_why(one))
            yield one.attempt

    def queued(self) -> Mapping[str, str]:
        """Return nothing: what was started runs."""
        return {}

    def wait(self, seconds: float) -> None:
        """Wait until a child ends."""
        poller = select.poll()
        for one in self._going.values():
            poller.register(one.ended, select.POLLIN)
        poller.poll(seconds * 1000)

    def cancel(self) -> None:
        """Stop all tries of this process: its shell passes the signal on to `timeout`, and that to
        the command, which it kills after a grace period."""
        started = [one.child for one in self._going.values()]
        for child in started:
            child.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + STOP_GRACE_S + LAST_S
        for child in started:
            try:
                child.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()


def _taken(file: int, numbers: Sequence[int], count: int, first: int) -> list[int]:
    """Lock so many devices, or as many as are free. They are free again when the file is closed."""
    free = (number for number in numbers if lock_byte(file, first + number))
    return [*itertools.islice(free, count)]


def _spawned(
    attempt: Attempt, slots: int, lock: int, cores: Sequence[int], gpus: Sequence[int]
) -> _Started:
    """Start a try on some cores and GPUs. It holds the two open files for as long as it runs."""
    environment = {**os.environ, **attempt.environment}
    if gpus:
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, gpus))
    kept = os.sched_getaffinity(0)
    try:
        if cores:
            os.sched_setaffinity(0, cores)
        child = subprocess.Popen(
            attempt.words,
            cwd=attempt.cwd,
            env=environment,
            stdin=slots,
            stdout=lock,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    finally:
        os.sched_setaffinity(0, kept)
    return _Started(attempt, child, os.pidfd_open(child.pid))


def _why(one: _Started) -> str:
    """Return why a try left no exit code."""
    code = one.child.returncode
    if code < 0:
        return f"its process was ended by signal {-code}"
    if code == STOPPED:
        return "it was stopped"
    if code:
        return "its folder cannot be written: is the disk full?"
    return "its process is gone, and left no exit code"
