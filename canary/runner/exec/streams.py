"""Standard streams of a user's command: passed on unchanged, and also written to the log."""

from __future__ import annotations

import contextlib
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Protocol

from canary.runner.exec.start_command import STDIN

CHUNK = 1 << 16


class Streams(Protocol):
    """Starts a process with its streams, and closes them after it."""

    def started(
        self, command: list[str], environment: dict[str, str], log: Path
    ) -> contextlib.AbstractContextManager[subprocess.Popen[bytes]]: ...


class LogOnly:
    """Output only to the log. `stdin` holds what the command read in its first launch."""

    def __init__(self, stdin: Path | None = None, cwd: str | None = None) -> None:
        self._stdin = stdin
        self._cwd = cwd

    @contextlib.contextmanager
    def started(
        self, command: list[str], environment: dict[str, str], log: Path
    ) -> Iterator[subprocess.Popen[bytes]]:
        """Yield the started process."""
        given = self._stdin if self._stdin is not None and self._stdin.exists() else os.devnull
        with log.open("ab") as stream, Path(given).open("rb") as stdin:
            yield subprocess.Popen(
                command,
                stdin=stdin,
                stdout=stream,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=self._cwd,
                start_new_session=True,
            )


@dataclass
class PassedOn:
    """This process's streams, as if the command had been started in its place.

    For a terminal, the command gets a pseudo-terminal of the same size. Input from a pipe or file
    is copied to `spool`, for further launches.
    """

    spool: Path
    _threads: list[threading.Thread] = field(default_factory=list)

    @contextlib.contextmanager
    def started(
        self, command: list[str], environment: dict[str, str], log: Path
    ) -> Iterator[subprocess.Popen[bytes]]:
        """Yield the started process; at its end, wait for the rest of its output."""
        with log.open("ab", buffering=0) as log_stream:
            out, err = _outlets(log_stream)
            outlets = {outlet for outlet in (out, err) if outlet is not None}
            stdin, sink = os.pipe() if _spools_stdin() else (None, None)
            if stdin is not None:
                environment = environment | {STDIN: pipe_name(stdin)}
            child = subprocess.Popen(
                command,
                stdin=stdin,
                stdout=None if out is None else out.inlet,
                stderr=None if err is None else err.inlet,
                env=environment,
                start_new_session=True,
                close_fds=False,  # pass on files that a shell opened for the command
            )
            if stdin is not None and sink is not None:
                os.close(stdin)
                self._begin(_pump_stdin, os.fdopen(sink, "wb"), self.spool)
            for outlet in outlets:
                outlet.begin()
            try:
                yield child
            finally:
                for outlet in outlets:
                    outlet.end()

    def _begin(self, work: object, *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)  # type: ignore[arg-type]
        thread.start()
        self._threads.append(thread)


def pipe_name(descriptor: int) -> str:
    """Return the system's name of a pipe, "" if it has none."""
    try:
        return str(Path(f"/proc/self/fd/{descriptor}").readlink())
    except OSError:
        return ""


def _spools_stdin() -> bool:
    """Whether standard input can be read only once."""
    try:
        mode = os.fstat(0).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)


def _pump_stdin(sink: BinaryIO, spool: Path) -> None:
    """Copy until the input ends or the command stops reading. Input may hold secrets."""
    with contextlib.suppress(OSError), sink, contextlib.ExitStack() as kept:
        copy: int | None = None
        with contextlib.suppress(OSError):
            copy = os.open(spool, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            kept.callback(os.close, copy)
        while chunk := os.read(0, CHUNK):
            if copy is not None and not _written(copy, chunk):
                copy = None
            sink.write(chunk)
            sink.flush()


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
