"""Launches that begin as forks of a Python that has imported what trains.

That Python is `canary.training.forking`.

Inside `warm_starts` the first launch starts that Python, the later ones use it, and so do those of
the processes that this one starts. A launch that it cannot stand for starts in the plain way:
another interpreter, other variables that an import may have read, a module of the user's that goes
before an installed one, a device in use, threads, a system that is not Linux.

It lives as long as the verb that opened `warm_starts`. Whoever trains here runs under the same user
as before, and could reach it as it could reach the canary itself.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Protocol

from canary.runner.exec.start_command import OURS

FORKING = Path(__file__).parents[1] / "training" / "forking.py"
PLACE = f"{OURS}WARM"
"""In the environment: the folder of the sockets."""
LIFE = "life"
MOST = 2
"""Warm Pythons at once: each holds some 400 MB, most of it shared with its launches."""
POLL_S = 0.05
PADDING = " " * 1024
"""Room for the command line of a launch, which other processes see in place of this."""
SINCE_READ = frozenset(
    (
        *("CUBLAS_WORKSPACE_CONFIG", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"),
        *("TENSORBOARD_LOGGING_DIR", "PYTHONPATH", "PYTEST_CURRENT_TEST"),
        *("OLDPWD", "PWD", "SHLVL", "_"),
    )
)
"""Variables that no import reads, or that a fork is given otherwise. Of the folder for compiled
kernels torch keeps a copy for `PRECOMPILED` alone."""
PRECOMPILED = "TORCH_CACHING_PRECOMPILE"
NEVER_READ = ("CANARY_", OURS)
"""How the canary's own variables begin."""


@contextlib.contextmanager
def warm_starts() -> Iterator[None]:
    """Lets the launches inside be forks; inside another `warm_starts` nothing new."""
    if sys.platform != "linux" or PLACE in os.environ:
        yield
        return
    with contextlib.ExitStack() as around:
        # What cannot be made is done without.
        with contextlib.suppress(OSError):
            folder = tempfile.mkdtemp(prefix="canary-warm-")
            around.callback(shutil.rmtree, folder, ignore_errors=True)
            around.callback(_end_own)
            life = around.enter_context(socket.socket(socket.AF_UNIX))
            life.bind(str(Path(folder, LIFE)))
            life.listen(8 * MOST)
            os.environ[PLACE] = folder
            around.callback(os.environ.pop, PLACE, None)
        yield


def without_place(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of a process that has no use for a warm start."""
    return {name: value for name, value in environment.items() if name != PLACE}


_own: list[subprocess.Popen[bytes]] = []
"""The warm Pythons that this process has started."""


def _end_own() -> None:
    while _own:
        process = _own.pop()
        process.kill()
        process.wait()


class Child(Protocol):
    """As much of a `subprocess.Popen` as a launch needs."""

    pid: int

    @property
    def returncode(self) -> int | None: ...
    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def send_signal(self, sig: int) -> None: ...
    def kill(self) -> None: ...


class WarmChild:
    """A launch that was forked (see `subprocess.Popen`)."""

    def __init__(self, teller: socket.socket, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._teller = teller
        self._process = os.pidfd_open(pid)

    def poll(self) -> int | None:
        """The exit code; None while it runs."""
        return self._read(0)

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, once it is there.

        Raises:
            subprocess.TimeoutExpired: it still runs after so many seconds.
        """
        code = self._read(timeout)
        if code is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(str(self.pid), timeout)
        return code

    def send_signal(self, sig: int) -> None:
        """Signals it, unless it has ended."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._process, sig)

    def kill(self) -> None:
        """Ends it at once."""
        self.send_signal(signal.SIGKILL)

    def close(self) -> None:
        """Gives its descriptors back."""
        self._teller.close()
        os.close(self._process)

    def _read(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._teller], [], [], timeout)[0]:
            told = _line(self._teller)
            if told is None:
                # What forked it is gone, and ended it by that (see `canary.training.lifeline`).
                self.kill()
                select.select([self._process], [], [])
            self.returncode = -signal.SIGKILL if told is None else told
        return self.returncode


def warm_child(
    job_file: Path, environment: Mapping[str, str], log: IO[bytes], waiting: Callable[[], bool]
) -> WarmChild | None:
    """A launch of the worker as a fork; None where it has to start in the plain way. `waiting` is
    called while the imports go on, and says whether there is time left."""
    place = os.environ.get(PLACE)
    if place is None:
        return None
    with contextlib.suppress(OSError):
        teller = _connected(Path(place), environment)
        if teller is None:
            return None
        try:
            _ask(teller, job_file, without_place(environment), log)
            while not select.select([teller], [], [], POLL_S)[0]:
                if not waiting():
                    teller.close()
                    return None
            pid = _line(teller)
            if pid is not None:
                return WarmChild(teller, pid)
        except BaseException:
            teller.close()
            raise
        teller.close()
    return None


def _ask(
    teller: socket.socket, job_file: Path, environment: Mapping[str, str], log: IO[bytes]
) -> None:
    here = str(Path.cwd())
    named = environment.get("PYTHONPATH", "")
    folders = [os.path.abspath(entry) for entry in named.split(os.pathsep)] if named else []  # noqa: PTH100 - as site.py
    if not environment.get("PYTHONSAFEPATH"):
        folders.insert(0, here)
    request = {"cwd": here, "path": folders, "job": str(job_file), "environment": environment}
    with tempfile.TemporaryFile("w") as stream:
        json.dump(request, stream)
        stream.flush()
        socket.send_fds(teller, [b"."], [log.fileno(), stream.fileno()])


def _line(teller: socket.socket) -> int | None:
    """The number that it tells; None where it has nothing more to tell."""
    told = b""
    with contextlib.suppress(OSError):
        while not told.endswith(b"\n"):
            more = teller.recv(1)
            if not more:
                return None
            told += more
        return int(told)
    return None


def _connected(place: Path, environment: Mapping[str, str]) -> socket.socket | None:
    """A line to the warm Python of this environment, started where there is none yet; None where
    there is to be none."""
    path = place / _key(environment)
    teller = socket.socket(socket.AF_UNIX)
    try:
        if not path.exists():
            if len(list(place.iterdir())) > MOST:  # one of them is the owner's
                raise OSError("there are enough")
            _start(path, environment)
        teller.connect(str(path))
    except OSError:  # it was unfit, or another process is starting it
        teller.close()
        return None
    return teller


def _key(environment: Mapping[str, str]) -> str:
    """The same for two launches that the same imports would leave alike."""
    unread: frozenset[str] = frozenset() if environment.get(PRECOMPILED) else SINCE_READ
    read = {
        name: value
        for name, value in environment.items()
        if name not in unread and not name.startswith(NEVER_READ)
    }
    text = json.dumps([sys.executable, str(FORKING), read], sort_keys=True)
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:16]


def _start(path: Path, environment: Mapping[str, str]) -> None:
    """Starts the Python that listens on `path`; it answers when it has imported everything."""
    own = {name: value for name, value in environment.items() if name not in (PLACE, "PYTHONPATH")}
    # Arrow's allocator would start a thread, and end it in a fork anyway.
    own["JE_ARROW_MALLOC_CONF"] = "background_thread:false"
    with (
        socket.socket(socket.AF_UNIX) as listener,
        socket.socket(socket.AF_UNIX) as life,
        tempfile.TemporaryFile() as printed,
    ):
        listener.bind(str(path))
        listener.listen()
        life.connect(str(path.with_name(LIFE)))
        numbers = (listener.fileno(), life.fileno())
        process = subprocess.Popen(
            [sys.executable, str(FORKING), *map(str, numbers), PADDING],
            cwd=path.parent,
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=subprocess.STDOUT,
            env=own,
            pass_fds=numbers,
            start_new_session=True,
        )
    _own.append(process)
