"""Standard streams of a user's command: passed on byte for byte, and kept in the log as well."""

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
    """Starts a process with the streams that it is to have, and closes them after it."""

    def started(
        self, command: list[str], environment: dict[str, str], log: Path
    ) -> contextlib.AbstractContextManager[subprocess.Popen[bytes]]: ...


class LogOnly:
    """Output to the log alone; `stdin` is what the command read in its first launch, or nothing."""

    def __init__(self, stdin: Path | None = None, cwd: str | None = None) -> None:
        self._stdin = stdin
        self._cwd = cwd

    @contextlib.contextmanager
    def started(
        self, command: list[str], environment: dict[str, str], log: Path
    ) -> Iterator[subprocess.Popen[bytes]]:
        """Yields the started process."""
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
    """This process's own streams, as if the command had been started in its place.

    A terminal stays one: the command gets a pseudo-terminal of the same size. `spool` takes down
    what is read from a pipe or a file, for a second launch to read again.
    """

    spool: Path
    _threads: list[threading.Thread] = field(default_factory=list)

    @contextlib.contextmanager
    def started(
        self, command: list[str], environment: dict[str, str], log: Path
    ) -> Iterator[subprocess.Popen[bytes]]:
        """Yields the started process; at its end, waits for the last of its output."""
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
                close_fds=False,  # what a shell opened for the command is the command's
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
    """What the system calls a pipe; empty where it does not say."""
    try:
        return str(Path(f"/proc/self/fd/{descriptor}").readlink())
    except OSError:
        return ""


def _spools_stdin() -> bool:
    """Whether standard input is a pipe or a file, where what is read is gone for the next."""
    try:
        mode = os.fstat(0).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)


def _pump_stdin(sink: BinaryIO, spool: Path) -> None:
    """Until the input ends, or the command reads no more. Input may hold secrets."""
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
    """Whether the whole of it could be written."""
    rest = memoryview(chunk)
    try:
        while rest:
            rest = rest[os.write(descriptor, rest) :]
    except OSError:
        return False
    return True


def _outlets(log: BinaryIO) -> tuple[_Outlet | None, _Outlet | None]:
    """For standard output and standard error: one for both where they are the same file or
    terminal, so that their order stays; none for one that was closed."""
    out = None if _is_closed(1) else _Outlet(sys.stdout.buffer, log)
    if _is_closed(2):
        return out, None
    if out is not None and os.path.sameopenfile(1, 2):
        return out, out
    return out, _Outlet(sys.stderr.buffer, log)


def _is_closed(descriptor: int) -> bool:
    """Whether this process got none: what stands in its place is not inherited."""
    try:
        return not os.get_inheritable(descriptor)
    except OSError:
        return True


class _Outlet:
    """One output stream of a command: a pipe, or a pseudo-terminal where ours is a terminal."""

    def __init__(self, shown: BinaryIO, log: BinaryIO) -> None:
        self._shown = shown
        self._log = log
        terminal = shown.isatty()
        self._read, self.inlet = os.openpty() if terminal else os.pipe()
        if terminal:
            _same_size(shown.fileno(), self.inlet)
        self._thread = threading.Thread(target=self._pump, daemon=True)

    def begin(self) -> None:
        """The process has its end of it: ours of that is closed, so that its end is seen."""
        os.close(self.inlet)
        self._thread.start()

    def end(self) -> None:
        """Waits for what is still on its way; a process that outlives the command may hold it."""
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
        """Whether anybody still reads it."""
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
