"""A Python that has imported the packages that train, and forks itself for each launch.

Started by path, `python forking.py`, by `canary.runner.warm`. It runs no code of the canary, of the
user, or of a folder on PYTHONPATH: all that is imported after the fork, by the launch, in its own
environment. Standard library only, and nothing here is imported by the launch.

Descriptors that it is given: 1 and 2, a file that keeps what the imports print; `LISTENER`, where
launches are asked for; `LIFE`, which its owner closes when it ends.
"""

import sys

if __name__ == "__main__" and not sys.flags.safe_path:
    del sys.path[0]  # this file's folder

import contextlib
import ctypes
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
import threading
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
"""What every built-in trainer imports, in the order in which a launch does."""
WORKER = "canary.training.worker"
MADV_POPULATE_READ = 22
PR_SET_PDEATHSIG = 1
SIZES = range(16, 512, 16)
"""Bytes of the blocks that CPython allocates from its own pools."""


class Unfit(Exception):
    """This process cannot stand for a fresh one; the launch starts its own."""


class Asked:
    """A finder that finds nothing and remembers which packages were looked for."""

    def __init__(self) -> None:
        self.names = {"sitecustomize", "usercustomize"}

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """As `importlib` asks it."""
        self.names.add(name.partition(".")[0])


class Warm:
    """What a launch finds imported."""

    def __init__(self) -> None:
        self._asked = Asked()
        self._path = list(sys.path)
        before = dict(os.environ)
        sys.meta_path.insert(0, self._asked)  # type: ignore[arg-type]
        gc.disable()  # a tenth of the time of the imports
        for name in PRELOADED:
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
        gc.enable()
        gc.collect()
        sys.meta_path.remove(self._asked)  # type: ignore[arg-type]
        if sys.path != self._path:
            raise Unfit("an import changed sys.path")
        now = dict(os.environ)
        self._changed = {
            name: now.get(name) for name in {*before, *now} if now.get(name) != before.get(name)
        }
        self._read = list(_file_pages())
        self._try()

    def _try(self) -> None:
        """Forks once, for the sake of libraries that end their threads before a fork.

        Raises:
            Unfit: a thread is left, or the fork cannot use what the imports set up.
        """
        pid = os.fork()
        if not pid:
            with _leaving():
                self._populate()
                os._exit(int(_device_in_use()))
        if os.waitpid(pid, 0)[1] or threading.active_count() > 1:
            raise Unfit("a device is in use, or pages cannot be mapped")
        if len(list(Path("/proc/self/task").iterdir())) > 1:
            raise Unfit("a thread of a library outlives a fork")

    def shadowed(self, folders: Iterable[str]) -> str | None:
        """What in these folders, which go before the installed packages, an import would have found
        or looked for here; None where nothing would."""
        taken = self._asked.names | {name.partition(".")[0] for name in sys.modules}
        for folder in filter(os.path.exists, folders):
            for entry in os.scandir(folder):  # NotADirectoryError: an archive
                name = re.split("[-.]", entry.name)[0]
                # A folder without __init__.py gives way to a package further on.
                package = not entry.is_dir() or Path(entry, "__init__.py").exists()
                if name in taken and (package or name not in sys.modules):
                    return entry.path
        return None

    def become(self, request: dict[str, Any]) -> None:
        """Makes this fork what a process of its own would be at the same point."""
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
        sys.orig_argv[:] = [sys.executable, "-m", WORKER, request["job"]]
        _show_as(sys.orig_argv)
        self._populate()
        _vary_addresses()
        if "numpy" in sys.modules:
            sys.modules["numpy"].random.seed()

    def _populate(self) -> None:
        """Maps what is mapped in the first process, so that resident memory counts it: a fork takes
        over no pages of files."""
        madvise = ctypes.CDLL(None, use_errno=True).madvise
        for start, length in self._read:
            if madvise(ctypes.c_void_p(start), ctypes.c_size_t(length), MADV_POPULATE_READ):
                raise Unfit(os.strerror(ctypes.get_errno()))


def _device_in_use() -> bool:
    """Whether a CUDA context, or what counts devices with one, was made before the fork."""
    torch: Any = sys.modules["torch"]
    devices = [getattr(torch, name, None) for name in ("cuda", "xpu")]
    return any(one._is_in_bad_fork() or one.is_initialized() for one in devices if one)


def _file_pages() -> Iterator[tuple[int, int]]:
    """(address, bytes) of the pages of files that are mapped now and only read."""
    size = mmap.PAGESIZE
    with Path("/proc/self/pagemap").open("rb", buffering=0) as pages:
        for line in Path("/proc/self/maps").read_text().splitlines():
            span, rights, _, _, inode = line.split()[:5]
            start, end = (int(part, 16) for part in span.split("-"))
            if inode == "0" or "w" in rights or "r" not in rights:
                continue
            # Eight bytes a page, little-endian; the highest bit says that it is there.
            top = os.pread(pages.fileno(), (end - start) // size * 8, start // size * 8)[7::8]
            for run in re.finditer(rb"[\x80-\xff]+", top):
                yield start + run.start() * size, (run.end() - run.start()) * size


def _end_with_parent() -> None:
    """As in `canary.training.lifeline`: the kernel kills this process when its parent is gone."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() == 1:
        os._exit(1)


_held: list[object] = []


def _vary_addresses() -> None:
    """Each process has other addresses, and so another order of what is hashed by address; forks
    would have those of their siblings, and hide that a program depends on it."""
    counts = os.urandom(len(SIZES))
    _held.extend(bytearray(size) for size, n in zip(SIZES, counts, strict=True) for _ in range(n))
    _held.append(mmap.mmap(-1, mmap.PAGESIZE * (1 + int.from_bytes(os.urandom(2)))))


def _show_as(words: list[str]) -> None:
    """Writes over the command line that other processes see, as far as there is room."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        start, end = int(fields[45]), int(fields[46])
        text = b"\0".join(os.fsencode(word) for word in words) + b"\0"
        if start and len(text) <= end - start:
            ctypes.memset(start, 0, end - start)
            ctypes.memmove(start, text, len(text))


@contextlib.contextmanager
def _leaving() -> Iterator[None]:
    """A fork never returns into the loop of its parent."""
    try:
        yield
    except BaseException:  # noqa: BLE001 - as an interpreter tells it
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(1)


class Launches:
    """Starts launches, tells how they end, and ends those whose asker is gone."""

    def __init__(self, warm: Warm, listener: socket.socket, life: socket.socket) -> None:
        self._warm = warm
        self._listener = listener
        self._life = life
        self._printed = os.pread(1, 1 << 20, 0)
        self._asker: dict[int, socket.socket] = {}
        """Of each living launch, by a descriptor of its process."""
        self._pid: dict[int, int] = {}

    def serve(self) -> None:
        """Until the owner is gone."""
        new, life = self._listener.fileno(), self._life.fileno()
        while True:
            gone = {asker.fileno(): process for process, asker in self._asker.items()}
            ready, _, _ = select.select([new, life, *gone, *self._asker], [], [])
            if life in ready:
                for pid in self._pid.values():
                    os.kill(pid, signal.SIGKILL)
                # The folder of the sockets, where an owner that was killed could not.
                shutil.rmtree(Path.cwd(), ignore_errors=True)
                os._exit(0)
            # An asker says nothing more: what can be read of it is its end.
            for process in {gone.get(one, one) for one in ready if one != new}:
                if process not in ready:
                    signal.pidfd_send_signal(process, signal.SIGKILL)
                self._ended(process)
            if new in ready:
                self._begin(self._listener.accept()[0])

    def _begin(self, asker: socket.socket) -> None:
        try:
            _, (log, asked), _, _ = socket.recv_fds(asker, 1, 2)
        except (OSError, ValueError):
            asker.close()
            return
        with os.fdopen(asked) as stream:
            stream.seek(0)
            request = json.load(stream)
        try:
            found = self._warm.shadowed(request["path"])
        except OSError as error:
            found = str(error)
        if found is not None:
            os.close(log)
            asker.close()
            return
        pid = os.fork()
        if not pid:
            with _leaving():
                self._launch(request, log, asker)
        os.close(log)
        process = os.pidfd_open(pid)
        self._asker[process], self._pid[process] = asker, pid
        _say(asker, pid)

    def _launch(self, request: dict[str, Any], log: int, asker: socket.socket) -> NoReturn:
        _end_with_parent()
        os.setsid()
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)
        for one in (self._listener, self._life, asker, *self._asker.values()):
            one.close()
        for process in self._asker:
            os.close(process)
        os.write(1, self._printed)
        self._warm.become(request)
        runpy.run_module(WORKER, run_name="__main__", alter_sys=True)
        raise AssertionError("the worker leaves by itself")

    def _ended(self, process: int) -> None:
        _, status = os.waitpid(self._pid.pop(process), 0)
        asker = self._asker.pop(process)
        _say(asker, os.waitstatus_to_exitcode(status))
        asker.close()
        os.close(process)


def _say(asker: socket.socket, number: int) -> None:
    with contextlib.suppress(OSError):
        asker.sendall(f"{number}\n".encode())


def main() -> None:
    """`forking.py LISTENER LIFE`: serves until the owner is gone, or leaves at once as unfit."""
    listener, life = (socket.socket(fileno=int(word)) for word in sys.argv[1:3])
    with contextlib.suppress(Unfit, OSError):
        Launches(Warm(), listener, life).serve()


if __name__ == "__main__":
    main()
