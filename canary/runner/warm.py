"""Launches forked from a warm Python that has already imported the training stack.

Inside `warm_starts` launches are forks of it (`canary.training.forking`), also those of processes
started from here. A launch starts the plain way if a fork could differ from a fresh process. It
does so with another interpreter, or with other variables that an import reads. So it does if a
user's module hides an installed one, with a device in use, with threads, and not on Linux. This
adds no new access: training code runs as the same user, and could already reach the canary itself.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO

from canary.machine.scratch import new_scratch, remove_left_scratches, remove_scratch

FORKING = str(Path(__file__).parents[1] / "training" / "forking.py")
WARM_SOCKET = "_RLHF_CANARY_WARM"
"""The environment variable with the path of the warm Python's socket."""
NOT_READ = (
    *("CUBLAS_WORKSPACE_CONFIG", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"),
    *("TENSORBOARD_LOGGING_DIR", "TORCH_EXTENSIONS_DIR", "PIP_CACHE_DIR", "UV_CACHE_DIR"),
    *("PYTHONPATH", "PYTEST_CURRENT_TEST", "OLDPWD", "PWD", "SHLVL", "_"),
)
"""Variables that no import reads, or that a fork gets later."""


@contextlib.contextmanager
def warm_starts() -> Iterator[None]:
    """Let launches inside start as forks; without effect inside another `warm_starts`. What killed
    verbs left is removed first."""
    remove_left_scratches()
    with contextlib.ExitStack() as around:
        # Without a folder, socket or process, launches start the plain way.
        with contextlib.suppress(OSError):
            if sys.platform == "linux" and WARM_SOCKET not in os.environ:
                folder = new_scratch("warm")
                around.callback(remove_scratch, folder)
                around.callback(around.enter_context(_warm_python(folder)).kill)
                os.environ[WARM_SOCKET] = str(folder / "socket")
                around.callback(os.environ.pop, WARM_SOCKET, None)
        yield


def _warm_python(folder: Path) -> subprocess.Popen[bytes]:
    """Start the Python that listens in a folder; it imports nothing before the first launch."""
    words = [sys.executable, "-I", "-S", FORKING, str(os.getpid())]
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with listener, (folder / "printed").open("w+b") as printed:
        listener.bind(str(folder / "socket"))
        listener.listen()
        return subprocess.Popen(
            words, stdin=listener.fileno(), stdout=printed, stderr=printed, start_new_session=True
        )


def without_warm_start(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a process that must not use a warm start."""
    return {name: value for name, value in environment.items() if name != WARM_SOCKET}


class WarmChild:
    """A forked launch, with the part of the interface of `subprocess.Popen` that is used."""

    def __init__(self, channel: socket.socket, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self.close = channel.close
        self._channel = channel

    def poll(self) -> int | None:
        """Return the exit code; None while it runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the exit code and return it; raises like `subprocess.Popen.wait`."""
        if self.returncode is None:
            if not select.select([self._channel], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
            # Without a code its guard is gone, and the kernel ends it.
            self.returncode = int(self._channel.recv(16) or -signal.SIGKILL)
        return self.returncode

    def kill(self) -> None:
        """End it at once."""
        self._channel.shutdown(socket.SHUT_WR)


Child = subprocess.Popen[bytes] | WarmChild


def warm_child(
    job_file: Path, environment: dict[str, str], log: IO[bytes], waiting: Callable[[], bool]
) -> WarmChild | None:
    """Start the worker as a fork; return None if it has to start the plain way. `waiting` is called
    during the imports, and returns whether time is left."""
    request = {"job": str(job_file), "cwd": str(Path.cwd()), "environment": environment}
    request |= {"python": [sys.executable, "-P", FORKING], "key": _key(environment)}
    with contextlib.suppress(KeyError, OSError), contextlib.ExitStack() as around:
        channel = around.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        channel.connect(os.environ[WARM_SOCKET])
        socket.send_fds(channel, [json.dumps(request).encode()], [log.fileno()])
        while not select.select([channel], [], [], 0.05)[0]:
            if not waiting():
                return None
        pid = channel.recv(16)
        if pid:
            around.pop_all()
            return WarmChild(channel, int(pid))
    return None


def _key(environment: dict[str, str]) -> str:
    """Return the same key for two launches whose imports would have the same effect."""
    unread = {*NOT_READ, "XDG_CACHE_HOME" if environment.get("HF_HOME") else ""}
    if environment.get("TORCH_CACHING_PRECOMPILE"):
        unread.remove("TORCHINDUCTOR_CACHE_DIR")
    read = sorted(
        (name, value)
        for name, value in environment.items()
        if name not in unread and not name.startswith(("CANARY_", "_RLHF_CANARY_"))
    )
    return hashlib.sha256(json.dumps([sys.executable, FORKING, read]).encode()).hexdigest()
