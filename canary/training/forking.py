"""A warm Python: it has imported the training packages, and forks itself for each launch.

`canary.runner.warm` starts this file by path. Before a fork it imports nothing of the canary, the
user, or a folder on PYTHONPATH: the launch imports those after the fork, in its environment.
Standard library only; no launch imports this module.

Its descriptors: 1 and 2, a file for the output of the imports; `LISTENER`, the socket for requests;
`LIFE`, a socket that its owner closes at its end.
"""

import contextlib
import ctypes
import fcntl
import gc
import importlib
import json
import mmap
import os
import re
import runpy
import select
import shutil
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NoReturn

PRELOADED = (
    "torch",
    "datasets",
    "transformers.trainer",
    "transformers.generation",
    "accelerate",
    "peft",
    "pydantic",
    "trl.trainer.utils",
)
"""Packages that every built-in trainer imports, in the order of a launch."""
WORKER = "canary.training.worker"
MADV_POPULATE_READ = 22
PR_SET_PDEATHSIG = 1
MAX_REQUEST = 1 << 24
"""Most bytes of a request."""
MAX_SILENT = 32
"""Most connections that have not sent their request yet."""
SILENT_S = 5.0
"""Seconds until such a connection is closed."""
SIZES = range(16, 512, 16)
"""Bytes of the blocks that CPython allocates from its pools."""


class Unfit(Exception):
    """A fork of this process would differ from a fresh process; launches start the plain way."""


class Searched:
    """An import finder that finds nothing, and keeps the names of packages searched for."""

    def __init__(self) -> None:
        self.names = {"sitecustomize", "usercustomize"}

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """Keep the package's name."""
        self.names.add(name.partition(".")[0])


def _names_plugins(metadata: Path) -> bool:
    """Return whether a package's metadata names code that imports load, as `import torch` does."""
    file = metadata / "entry_points.txt"
    if not file.is_file():
        return False
    groups = re.findall(r"^\s*\[(.*)\]", file.read_text("utf-8", "replace"), re.MULTILINE)
    return any(group.strip() not in ("console_scripts", "gui_scripts") for group in groups)


class Warm:
    """The imported packages, and their effects on the process."""

    def __init__(self) -> None:
        self._searched = Searched()
        self._path = list(sys.path)
        before = dict(os.environ)
        sys.meta_path.insert(0, self._searched)  # type: ignore[arg-type]
        gc.disable()  # saves a tenth of the imports' time
        for name in PRELOADED:
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
        gc.enable()
        gc.collect()
        sys.meta_path.remove(self._searched)  # type: ignore[arg-type]
        if sys.path != self._path:
            raise Unfit("an import changed sys.path")
        now = dict(os.environ)
        self._changed = {
            name: now.get(name) for name in {*before, *now} if now.get(name) != before.get(name)
        }
        self._read = list(_file_pages())
        self._try()

    def _try(self) -> None:
        """Fork once as a test: some libraries end their threads before a fork.

        Raises:
            Unfit: a thread is left, a device is in use, or pages cannot be mapped.
        """
        pid = os.fork()
        if not pid:
            with _leaving():
                self._populate()
                os._exit(int(_device_in_use()))
        if os.waitpid(pid, 0)[1] or threading.active_count() > 1:
            raise Unfit("a device is in use, or pages cannot be mapped")
        if len(list(Path("/proc/self/task").iterdir())) > 1:
            raise Unfit("a library's thread is still running after a fork")

    def shadowed(self, folders: Iterable[str]) -> str | None:
        """Return the first entry in these folders that would have changed an import here, None
        without one. The folders go before the installed packages."""
        taken = self._searched.names | {name.partition(".")[0] for name in sys.modules}
        for folder in filter(os.path.exists, folders):
            for entry in os.scandir(folder):  # NotADirectoryError: an archive
                name = re.split("[-.]", entry.name)[0]
                if entry.name.lower().endswith((".dist-info", ".egg-info")):
                    if name in taken or _names_plugins(Path(entry)):
                        return entry.path
                    continue
                # A folder without __init__.py hides no package of a later folder.
                package = not entry.is_dir() or Path(entry, "__init__.py").exists()
                if name in taken and (package or name not in sys.modules):
                    return entry.path
        return None

    def become(self, request: dict[str, Any]) -> None:
        """Bring this fork to the state of a fresh process after the same imports."""
        os.chdir(request["cwd"])
        os.environ.clear()
        os.environ.update(request["environment"])
        for name, value in self._changed.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
        sys.path[:] = list(dict.fromkeys([*request["path"], *self._path]))
        importlib.invalidate_caches()
        sys.argv[:] = ["-m", request["job"]]
        sys.orig_argv[:] = [sys.executable, "-P", "-m", WORKER, request["job"]]
        _show_as(sys.orig_argv)
        self._populate()
        _vary_addresses()
        if "numpy" in sys.modules:
            sys.modules["numpy"].random.seed()

    def _populate(self) -> None:
        """Map the files' pages that are mapped in the parent, so that resident memory counts them:
        a fork does not inherit them."""
        madvise = ctypes.CDLL(None, use_errno=True).madvise
        for start, length in self._read:
            if madvise(ctypes.c_void_p(start), ctypes.c_size_t(length), MADV_POPULATE_READ):
                raise Unfit(os.strerror(ctypes.get_errno()))


def _device_in_use() -> bool:
    """Whether the imports used a device: it could not be used again after a fork."""
    torch: Any = sys.modules["torch"]
    devices = [getattr(torch, name, None) for name in ("cuda", "xpu")]
    return any(one._is_in_bad_fork() or one.is_initialized() for one in devices if one)


def _file_pages() -> Iterator[tuple[int, int]]:
    """Yield (address, bytes) of the read-only pages of files that are in memory now."""
    size = mmap.PAGESIZE
    with Path("/proc/self/pagemap").open("rb", buffering=0) as pages:
        for line in Path("/proc/self/maps").read_text().splitlines():
            span, rights, _, _, inode = line.split()[:5]
            start, end = (int(part, 16) for part in span.split("-"))
            if inode == "0" or "w" in rights or "r" not in rights:
                continue
            # Eight bytes per page, little-endian; the highest bit says that it is in memory.
            top = os.pread(pages.fileno(), (end - start) // size * 8, start // size * 8)[7::8]
            for run in re.finditer(rb"[\x80-\xff]+", top):
                yield start + run.start() * size, (run.end() - run.start()) * size


def _end_with_parent() -> None:
    """Let the kernel kill this process when its parent is gone, as `canary.protocol.lifeline`."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() == 1:
        os._exit(1)


_kept_alive: list[object] = []


def _vary_addresses() -> None:
    """Allocate a random amount, so that addresses differ from those of other forks. Fresh processes
    differ too, and so do their orders of objects hashed by address. Equal addresses would hide that
    a program depends on that order."""
    counts = os.urandom(len(SIZES))
    _kept_alive.extend(
        bytearray(size) for size, n in zip(SIZES, counts, strict=True) for _ in range(n)
    )
    _kept_alive.append(mmap.mmap(-1, mmap.PAGESIZE * (1 + int.from_bytes(os.urandom(2)))))


def _show_as(words: list[str]) -> None:
    """Replace the command line that other processes see, if it fits."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        start, end = int(fields[45]), int(fields[46])
        text = b"\0".join(os.fsencode(word) for word in words) + b"\0"
        if start and len(text) <= end - start:
            ctypes.memset(start, 0, end - start)
            ctypes.memmove(start, text, len(text))


@contextlib.contextmanager
def _leaving() -> Iterator[None]:
    """Exit at the end: a fork must not return into its parent's loop."""
    try:
        yield
    except BaseException:  # noqa: BLE001 - as the interpreter does
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(1)


class Launches:
    """Starts launches, sends their exit codes, and ends those whose client is gone."""

    def __init__(self, warm: Warm, listener: socket.socket, life: socket.socket) -> None:
        self._warm = warm
        self._listener = listener
        self._life = life
        self._printed = os.pread(1, 1 << 20, 0)
        self._client: dict[int, socket.socket] = {}
        """Per running launch, by the descriptor of its process."""
        self._pid: dict[int, int] = {}
        self._silent: dict[socket.socket, float] = {}
        """Per connection without a request, when it was accepted; the oldest first."""

    def serve(self) -> None:
        """Serve requests until the owner is gone."""
        new, life = self._listener.fileno(), self._life.fileno()
        while True:
            gone = {client.fileno(): process for process, client in self._client.items()}
            watched: list[Any] = [new, life, *gone, *self._client, *self._silent]
            ready, _, _ = select.select(watched, [], [], SILENT_S if self._silent else None)
            if life in ready:
                for pid in self._pid.values():
                    os.kill(pid, signal.SIGKILL)
                # Remove the sockets' folder: an owner that was killed could not.
                shutil.rmtree(Path.cwd(), ignore_errors=True)
                os._exit(0)
            # A client sends nothing after its request: readable means that it is gone.
            for process in {gone.get(one, one) for one in ready if one in gone or one in self._pid}:
                if process not in ready:
                    signal.pidfd_send_signal(process, signal.SIGKILL)
                self._ended(process)
            for client in [one for one in ready if one in self._silent]:
                del self._silent[client]
                self._begin(client)
            self._close_silent()
            if new in ready:
                self._silent[self._listener.accept()[0]] = time.monotonic()

    def _close_silent(self) -> None:
        """Close the connections that are silent for too long, and leave room for one more."""
        latest = time.monotonic() - SILENT_S
        for client, accepted in list(self._silent.items()):
            if accepted < latest or len(self._silent) >= MAX_SILENT:
                del self._silent[client]
                client.close()

    def _begin(self, client: socket.socket) -> None:
        received: list[int] = []
        try:
            _, received, _, _ = socket.recv_fds(client, 1, 2)
            _, request_file = received
            request = json.loads(os.pread(request_file, MAX_REQUEST, 0))
            fit = self._warm.shadowed(request["path"]) is None
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            fit = False
        if fit:
            pid = os.fork()
            if not pid:
                with _leaving():
                    self._launch(request, received, client)
            process = os.pidfd_open(pid)
            self._client[process], self._pid[process] = client, pid
            _send(client, pid)
        else:
            client.close()
        for descriptor in received:
            os.close(descriptor)

    def _launch(
        self, request: dict[str, Any], received: list[int], client: socket.socket
    ) -> NoReturn:
        _end_with_parent()
        os.setsid()
        os.dup2(received[0], 1)
        os.dup2(received[0], 2)
        for one in (self._listener, self._life, client, *self._client.values(), *self._silent):
            one.close()
        for descriptor in (*received, *self._client):
            os.close(descriptor)
        os.write(1, self._printed)
        self._warm.become(request)
        runpy.run_module(WORKER, run_name="__main__", alter_sys=True)
        raise AssertionError("the worker leaves by itself")

    def _ended(self, process: int) -> None:
        _, status = os.waitpid(self._pid.pop(process), 0)
        client = self._client.pop(process)
        _send(client, os.waitstatus_to_exitcode(status))
        client.close()
        os.close(process)


def _send(client: socket.socket, number: int) -> None:
    with contextlib.suppress(OSError):
        client.sendall(f"{number}\n".encode())


def main() -> None:
    """Run `forking.py LISTENER LIFE`: serve until the owner is gone, or exit at once if unfit."""
    listener, life = (socket.socket(fileno=int(word)) for word in sys.argv[1:3])
    with contextlib.suppress(Unfit, OSError):
        # The imports take seconds: until they end, SIGIO ends this process with its owner.
        fcntl.fcntl(life, fcntl.F_SETOWN, os.getpid())
        flags = fcntl.fcntl(life, fcntl.F_GETFL)
        fcntl.fcntl(life, fcntl.F_SETFL, flags | fcntl.FASYNC)
        warm = Warm()
        fcntl.fcntl(life, fcntl.F_SETFL, flags)
        Launches(warm, listener, life).serve()


if __name__ == "__main__":
    main()
