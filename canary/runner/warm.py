"""Launches forked from a warm Python that has already imported the training stack.

Inside `warm_starts` the first launch starts the warm Python (`canary.training.forking`). Later
launches use it, also those of processes started from here. A launch starts the plain way if a fork
could differ from a fresh process. One reason is another interpreter, or other variables that an
import reads. Others are a user's module that hides an installed one, and a package's metadata on
the user's path. The last are a device in use, threads, no Linux.

The warm Python ends with the verb that opened `warm_starts`. It adds no new access: training code
runs as the same user, and could already reach the canary itself.
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

from canary.machine.scratch import new_scratch, remove_left_scratches

OURS = "_RLHF_CANARY_"
"""Prefix of the variables that each launch gets anew."""
FORKING = Path(__file__).parents[1] / "training" / "forking.py"
WARM_FOLDER = f"{OURS}WARM"
"""The environment variable with the folder of the sockets."""
LIFE = "life"
MAX_WARM = 2
"""Most warm Pythons at once: each takes about 400 MB, most of it shared with its launches."""
POLL_S = 0.05
LINE_S = 5.0
"""Most seconds to connect to a warm Python, or to read the rest of a line from it."""
PADDING = " " * 1024
"""Space in the warm Python's command line: each fork writes its launch's command line there."""
NOT_READ = frozenset(
    (
        *("CUBLAS_WORKSPACE_CONFIG", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"),
        *("TENSORBOARD_LOGGING_DIR", "PYTHONPATH", "PYTEST_CURRENT_TEST"),
        *("TORCH_EXTENSIONS_DIR", "PIP_CACHE_DIR", "UV_CACHE_DIR"),
        *("OLDPWD", "PWD", "SHLVL", "_"),
    )
)
"""Variables that no import reads, or that a fork gets later. Torch copies the folder of compiled
kernels at import only with `PRECOMPILED`."""
CACHES, HUB_FOLDER = "XDG_CACHE_HOME", "HF_HOME"
"""No import reads the first one if the second is set."""
PRECOMPILED = "TORCH_CACHING_PRECOMPILE"
CANARY_PREFIXES = ("CANARY_", OURS)


@contextlib.contextmanager
def warm_starts() -> Iterator[None]:
    """Let launches inside start as forks; without effect inside another `warm_starts`. What killed
    verbs left is removed first."""
    remove_left_scratches()
    if sys.platform != "linux" or WARM_FOLDER in os.environ:
        yield
        return
    with contextlib.ExitStack() as around:
        # Without a folder or socket, launches start the plain way.
        with contextlib.suppress(OSError):
            folder = str(new_scratch("warm"))
            around.callback(shutil.rmtree, folder, ignore_errors=True)
            around.callback(_end_warm_pythons)
            life = around.enter_context(socket.socket(socket.AF_UNIX))
            life.bind(str(Path(folder, LIFE)))
            life.listen(8 * MAX_WARM)
            os.environ[WARM_FOLDER] = folder
            around.callback(os.environ.pop, WARM_FOLDER, None)
        yield


def without_warm_start(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a process that must not use a warm start."""
    return {name: value for name, value in environment.items() if name != WARM_FOLDER}


_warm_pythons: list[subprocess.Popen[bytes]] = []
"""Started by this process."""


def _end_warm_pythons() -> None:
    while _warm_pythons:
        process = _warm_pythons.pop()
        process.kill()
        process.wait()


class Child(Protocol):
    """The part of `subprocess.Popen` that a launch needs."""

    pid: int

    @property
    def returncode(self) -> int | None: ...
    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def send_signal(self, sig: int) -> None: ...
    def kill(self) -> None: ...


class WarmChild:
    """A forked launch, with the interface of `subprocess.Popen`."""

    def __init__(self, channel: socket.socket, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._channel = channel
        self._process = os.pidfd_open(pid)

    def poll(self) -> int | None:
        """Return the exit code; None while it runs."""
        return self._read(0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the exit code and return it.

        Raises:
            subprocess.TimeoutExpired: it still runs after `timeout` seconds.
        """
        code = self._read(timeout)
        if code is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(str(self.pid), timeout)
        return code

    def send_signal(self, sig: int) -> None:
        """Send a signal, unless it has ended."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._process, sig)

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)

    def close(self) -> None:
        """Close its descriptors."""
        self._channel.close()
        os.close(self._process)

    def _read(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._channel], [], [], timeout)[0]:
            code = _line(self._channel)
            if code is None:
                # The warm Python is gone, and the kernel ends its forks (see `_end_with_parent`).
                self.kill()
                select.select([self._process], [], [])
            self.returncode = -signal.SIGKILL if code is None else code
        return self.returncode


def warm_child(
    job_file: Path, environment: Mapping[str, str], log: IO[bytes], waiting: Callable[[], bool]
) -> WarmChild | None:
    """Start the worker as a fork; return None if it has to start the plain way. `waiting` is called
    during the imports, and returns whether time is left."""
    folder = os.environ.get(WARM_FOLDER)
    if folder is None:
        return None
    with contextlib.suppress(OSError):
        channel = _connected(Path(folder), environment)
        if channel is None:
            return None
        try:
            _ask(channel, job_file, without_warm_start(environment), log)
            while not select.select([channel], [], [], POLL_S)[0]:
                if not waiting():
                    channel.close()
                    return None
            pid = _line(channel)
            if pid is not None:
                return WarmChild(channel, pid)
        except BaseException:
            channel.close()
            raise
        channel.close()
    return None


def _ask(
    channel: socket.socket, job_file: Path, environment: Mapping[str, str], log: IO[bytes]
) -> None:
    named = environment.get("PYTHONPATH", "")
    folders = [os.path.abspath(entry) for entry in named.split(os.pathsep)] if named else []  # noqa: PTH100 - as site.py
    request = {
        "cwd": str(Path.cwd()),
        "path": folders,
        "job": str(job_file),
        "environment": environment,
    }
    with tempfile.TemporaryFile("w") as stream:
        json.dump(request, stream)
        stream.flush()
        socket.send_fds(channel, [b"."], [log.fileno(), stream.fileno()])


def _line(channel: socket.socket) -> int | None:
    """Return the next number from the warm Python, None if it closed the connection."""
    text = b""
    with contextlib.suppress(OSError):
        while not text.endswith(b"\n"):
            more = channel.recv(1)
            if not more:
                return None
            text += more
        return int(text)
    return None


def _connected(folder: Path, environment: Mapping[str, str]) -> socket.socket | None:
    """Return a connection to the warm Python of this environment, started if needed; None if this
    launch has to start the plain way."""
    path = folder / _key(environment)
    channel = socket.socket(socket.AF_UNIX)
    channel.settimeout(LINE_S)
    try:
        if not path.exists():
            # Besides, the folder holds the socket `LIFE` and its owner's lock.
            if len(list(folder.iterdir())) > MAX_WARM + 1:
                raise OSError("there are enough")
            _start(path, environment)
        channel.connect(str(path))
    except OSError:  # it ended as unfit, or another process is just starting it
        channel.close()
        return None
    return channel


def _key(environment: Mapping[str, str]) -> str:
    """Return the same key for two launches whose imports would have the same effect."""
    unread: frozenset[str] = frozenset() if environment.get(PRECOMPILED) else NOT_READ
    if unread and environment.get(HUB_FOLDER):
        unread |= {CACHES}
    read = {
        name: value
        for name, value in environment.items()
        if name not in unread and not name.startswith(CANARY_PREFIXES)
    }
    text = json.dumps([sys.executable, str(FORKING), read], sort_keys=True)
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:16]


def _start(path: Path, environment: Mapping[str, str]) -> None:
    """Start the Python that listens on `path`; it answers when it has imported everything."""
    left_out = (WARM_FOLDER, "PYTHONPATH")
    variables = {name: value for name, value in environment.items() if name not in left_out}
    # Arrow's allocator would start a thread, which a fork does not keep.
    variables["JE_ARROW_MALLOC_CONF"] = "background_thread:false"
    with (
        socket.socket(socket.AF_UNIX) as listener,
        socket.socket(socket.AF_UNIX) as life,
        tempfile.TemporaryFile() as printed,
    ):
        listener.bind(str(path))
        listener.listen()
        life.setblocking(False)  # OSError if the socket is full
        life.connect(str(path.with_name(LIFE)))
        numbers = (listener.fileno(), life.fileno())
        process = subprocess.Popen(
            [sys.executable, "-P", str(FORKING), *map(str, numbers), PADDING],
            cwd=path.parent,
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=subprocess.STDOUT,
            env=variables,
            pass_fds=numbers,
            start_new_session=True,
        )
    _warm_pythons.append(process)
