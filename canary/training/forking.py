"""A warm Python: it has imported the training packages, and forks itself for each launch.

`canary.runner.warm` starts this file by path. It waits for the first request, and starts again in
the environment of that launch. Before a fork it imports nothing of the canary, the user, or a
folder on PYTHONPATH. Standard library only; no launch imports this module.
"""

import contextlib
import ctypes
import importlib
import json
import mmap
import os
import runpy
import select
import signal
import socket
import sys
from pathlib import Path

PRELOADED = (
    *("torch", "datasets", "transformers.trainer", "transformers.generation"),
    *("accelerate", "peft", "pydantic", "trl.trainer.utils"),
)
"""Packages that every built-in trainer imports, in the order of a launch."""
WORKER = "canary.training.worker"
MAX_REQUEST_BYTES = 1 << 20


class Searched(set[str]):
    """An import finder that finds nothing, and keeps the names of packages searched for."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """Keep the package's name."""
        self.add(name.partition(".")[0])


def _import_packages() -> set[str]:
    """Import what is installed; return the names of all packages that were searched for."""
    searched = Searched(("sitecustomize", "usercustomize"))
    sys.meta_path.insert(0, searched)  # type: ignore[arg-type]
    for name in PRELOADED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    sys.meta_path.remove(searched)  # type: ignore[arg-type]
    return searched | {name.partition(".")[0] for name in sys.modules}


def _write_pages() -> None:
    """Write a byte of each mapped file's private pages as it is. Then a fork inherits those of the
    file's pages that are in memory. So its resident memory is that of a fresh process."""
    with Path("/proc/self/mem").open("r+b", buffering=0) as memory:
        for line in Path("/proc/self/maps").read_text().splitlines():
            span, rights, _, _, inode = line.split()[:5]
            if inode != "0" and rights[0] == "r" and rights[3] == "p":
                start = int(span.partition("-")[0], 16)
                os.pwrite(memory.fileno(), os.pread(memory.fileno(), 1, start), start)


def _is_shadowed(folder: Path, names: set[str]) -> bool:
    """Whether an entry in a folder that goes before the installed packages would have changed an
    import here. The metadata of a package may name plugins that imports load."""
    for entry in folder.iterdir() if folder.exists() else ():
        name, _, suffix = entry.name.partition(".")
        # A folder without __init__.py hides no package of a later folder.
        hides = not entry.is_dir() or (entry / "__init__.py").exists() or name not in sys.modules
        if (name in names and hides) or suffix.lower().endswith(("dist-info", "egg-info")):
            return True
    return False


def _end_with(parent: int) -> None:
    """Let the kernel kill this process when its parent is gone."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:
        os._exit(1)


def _vary_addresses() -> list[object]:
    """Allocate a random amount: addresses, and so the order of sets of objects, differ between
    forks as between fresh processes. Else a program that depends on the order would seem exact."""
    sizes = range(16, 512, 16)  # of the blocks that CPython allocates from its pools
    kept: list[object] = [bytearray(size) for size in sizes for _ in range(os.urandom(1)[0])]
    return [*kept, mmap.mmap(-1, mmap.PAGESIZE * (1 + int.from_bytes(os.urandom(2))))]


def main() -> None:
    """Run `forking.py OWNER [KEY CLIENT]`: serve launches of this key until the owner is gone.
    Descriptor 0 is the listening socket; the connection `CLIENT` has the first request."""
    _end_with(int(sys.argv[1]))
    listener = socket.socket(fileno=0)
    if len(sys.argv) == 2:
        client, _ = listener.accept()
        request = json.loads(client.recv(MAX_REQUEST_BYTES, socket.MSG_PEEK))
        # Arrow's allocator would start a thread, which a fork does not keep.
        variables = request["environment"] | {"JE_ARROW_MALLOC_CONF": "background_thread:false"}
        variables.pop("PYTHONPATH", None)
        client.set_inheritable(True)
        words = [*request["python"], sys.argv[1], request["key"], str(client.fileno())]
        os.execve(words[0], words, variables)
    client = socket.socket(fileno=int(sys.argv[3]))
    before, path = dict(os.environ), list(sys.path)
    names = _import_packages()
    changed = {name: text for name, text in os.environ.items() if before.get(name) != text}
    if sys.path != path or before.keys() - os.environ.keys():
        return
    _write_pages()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # The kernel removes ended forks.
    warm, printed = os.getpid(), os.pread(1, 1 << 20, 0)
    while os.fork():
        client.close()
        client, _ = listener.accept()

    # A fork: it guards one launch. If it ends without an answer, the launch starts the plain way.
    _end_with(warm)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    message, (log,), _, _ = socket.recv_fds(client, MAX_REQUEST_BYTES, 1)
    request = json.loads(message)
    os.chdir(request["cwd"])
    named = request["environment"].get("PYTHONPATH", "")
    folders = [os.path.abspath(entry) for entry in named.split(os.pathsep)] if named else []  # noqa: PTH100 - as site.py
    if (
        request["key"] != sys.argv[2]
        or any(_is_shadowed(Path(folder), names) for folder in folders)
        or any(getattr(sys.modules["torch"], name)._is_in_bad_fork() for name in ("cuda", "xpu"))
        # Some libraries end their threads before a fork.
        or len(list(Path(f"/proc/{warm}/task").iterdir())) > 1
    ):
        os._exit(1)
    guard = os.getpid()
    launch = os.fork()
    if launch:
        _guard(client, launch)
    _end_with(guard)
    client.close()
    listener.close()
    sys.path[:] = dict.fromkeys([*folders, *path])
    _train(request["job"], request["environment"] | changed, log, printed)


def _guard(client: socket.socket, launch: int) -> None:
    """Tell the client the process of its launch, then how it ended."""
    watched = [client.fileno(), os.pidfd_open(launch)]
    client.send(b"%d" % launch)
    # A client sends nothing after its request: readable means that it is gone, or kills.
    if client.fileno() in select.select(watched, [], [])[0]:
        os.kill(launch, signal.SIGKILL)
    client.send(b"%d" % os.waitstatus_to_exitcode(os.waitpid(launch, 0)[1]))
    os._exit(0)


def _train(job: str, environment: dict[str, str], log: int, printed: bytes) -> None:
    """Bring this fork to the state of a fresh process after the same imports, and run its job."""
    os.setsid()
    for descriptor in (1, 2):
        os.dup2(log, descriptor)
    os.close(log)
    os.set_inheritable(os.open(os.devnull, os.O_RDONLY), True)  # the lowest free one: 0
    os.write(1, printed)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv[:] = ["-m", job]
    sys.orig_argv[:] = [sys.executable, "-P", "-m", WORKER, job]
    _kept = _vary_addresses()
    sys.modules["numpy"].random.seed()
    runpy.run_module(WORKER, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
