"""Standard streams of a user's command: passed on unchanged, and also written to the log."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

CHUNK = 1 << 16


Start = Callable[
    [list[str], dict[str, str], Path],
    contextlib.AbstractContextManager[subprocess.Popen[bytes]],
]
"""Starts a command, given its environment and its log: `log_only` or `passed_on`."""


@contextlib.contextmanager
def log_only(
    command: list[str], environment: dict[str, str], log: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """Yield a process that gets no input, and whose output goes only to the log."""
    with log.open("ab") as stream:
        yield subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )


@contextlib.contextmanager
def passed_on(
    command: list[str], environment: dict[str, str], log: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """Yield a process with this one's streams, as if it had been started in its place; at its end,
    wait for the rest of its output. For a terminal, it gets a pseudo-terminal of the same size."""
    with log.open("ab", buffering=0) as log_stream:
        out, err = _outlets(log_stream)
        outlets = {outlet for outlet in (out, err) if outlet is not None}
        child = subprocess.Popen(
            command,
            stdout=None if out is None else out.inlet,
            stderr=None if err is None else err.inlet,
            env=environment,
            start_new_session=True,
            close_fds=False,  # pass on files that a shell opened for the command
        )
        for outlet in outlets:
            outlet.begin()
        try:
            yield child
        finally:
            for outlet in outlets:
                outlet.end()


def _written(descriptor: int, chunk: bytes) -> bool:
    """Write all of `chunk`; return whether that worked."""
    rest = memoryview(chunk)
    try:
        while rest:
            rest = rest[os.write(descriptor, rest) :]
    except OSError:
        return False
    return True


def _outlets(log: BinaryIO) -> tuple[_Outlet | None, _Outlet | None]:
    """Return the outlets of standard output and standard error: the same one if both are one file
    or terminal, to keep their order; None for a closed stream."""
    out = None if _is_closed(1) else _Outlet(sys.stdout.buffer, log)
    if _is_closed(2):
        return out, None
    if out is not None and os.path.sameopenfile(1, 2):
        return out, out
    return out, _Outlet(sys.stderr.buffer, log)


def _is_closed(descriptor: int) -> bool:
    """Whether this process has no such stream: a file reopened at its number is not inheritable."""
    try:
        return not os.get_inheritable(descriptor)
    except OSError:
        return True


class _Outlet:
    """One output stream of a command: a pipe, or a pseudo-terminal if the user has a terminal."""

    def __init__(self, shown: BinaryIO, log: BinaryIO) -> None:
        self._shown = shown
        self._log = log
        terminal = shown.isatty()
        self._read, self.inlet = os.openpty() if terminal else os.pipe()
        if terminal:
            _same_size(shown.fileno(), self.inlet)
        self._thread = threading.Thread(target=self._pump, daemon=True)

    def begin(self) -> None:
        """Close this process's copy of the inlet, to see when the command closes its copy."""
        os.close(self.inlet)
        self._thread.start()

    def end(self) -> None:
        """Wait briefly for the rest of the output: a background process may keep the stream."""
        self._thread.join(timeout=5.0)

    def _pump(self) -> None:
        shown = logged = True
        with contextlib.suppress(OSError):  # a pseudo-terminal ends with EIO
            while chunk := os.read(self._read, CHUNK):
                logged = logged and _written(self._log.fileno(), chunk)
                if shown:
                    shown = self._show(chunk)
        os.close(self._read)

    def _show(self, chunk: bytes) -> bool:
        """Write to the user's stream; return whether it is still read."""
        try:
            self._shown.write(chunk)
            self._shown.flush()
        except (BrokenPipeError, ValueError):
            return False
        return True


def _same_size(ours: int, theirs: int) -> None:
    import fcntl
    import termios

    with contextlib.suppress(OSError):
        size = fcntl.ioctl(ours, termios.TIOCGWINSZ, b"\0" * 8)
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, size)
