"""Runs the command line as if on macOS: what Linux alone has is taken away first.

`python tests/contract/without_linux.py ARGUMENTS` runs `canary ARGUMENTS`. With `-c PROGRAM` it
runs a program instead. Real macOS differs in more than this.
"""

from __future__ import annotations

import errno
import fcntl
import importlib
import os
import platform
import resource
import select
import signal
import sys
import sysconfig
import time
from collections.abc import Callable
from typing import Any

LINUX_ONLY = {
    os: (
        *("CLONE_", "EFD_", "GRND_", "MFD_", "O_DIRECT", "O_LARGEFILE", "O_NOATIME", "O_PATH"),
        *("O_RSYNC", "O_TMPFILE", "P_PIDFD", "PIDFD_", "RTLD_DEEPBIND", "SPLICE_", "XATTR_"),
        *("copy_file_range", "eventfd", "fdatasync", "getrandom", "getresgid", "getresuid"),
        *("getxattr", "listxattr", "memfd_create", "pidfd_open", "pipe2", "posix_fadvise"),
        *("posix_fallocate", "removexattr", "sched_getaffinity", "sched_getparam"),
        *("sched_setaffinity", "sched_setscheduler", "setns", "setresgid", "setresuid"),
        *("setxattr", "splice", "timerfd_", "unshare"),
    ),
    select: ("EPOLL", "epoll"),
    signal: (
        *("SIGCLD", "SIGPOLL", "SIGPWR", "SIGRTMAX", "SIGRTMIN", "SIGSTKFLT"),
        *("pidfd_send_signal", "sigtimedwait", "sigwaitinfo"),
    ),
    fcntl: (
        *("DN_", "F_ADD_SEALS", "F_GETLEASE", "F_GETPIPE", "F_GET_SEALS", "F_NOTIFY"),
        *("F_OFD_", "F_SEAL_", "F_SETLEASE", "F_SETPIPE", "F_SETSIG"),
    ),
    resource: (
        *("RLIMIT_MSGQUEUE", "RLIMIT_NICE", "RLIMIT_OFILE", "RLIMIT_RT", "RLIMIT_SIGPENDING"),
        *("RUSAGE_THREAD", "prlimit"),
    ),
    time: ("CLOCK_BOOTTIME", "pthread_getcpuclockid"),
}
"""Module -> beginnings of the names that Python documents as missing on macOS."""
ABSENT = ("/proc", "/sys")
CHOOSE_EARLY = (
    *("asyncio.unix_events", "multiprocessing.context", "shutil", "subprocess", "tempfile"),
    *("ctypes.util", "github", "jinja2", "psutil", "pydantic", "rich.console", "typer"),
)
"""Modules that choose by the system when they are imported: that is not the canary's choice."""
READS_PROC = ("psutil", "pynvml")
"""Packages that ask macOS by other means."""


def take_away() -> None:
    """Remove names, folders and the name of the system."""
    for module, beginnings in LINUX_ONLY.items():
        for name in [name for name in dir(module) if name.startswith(beginnings)]:
            delattr(module, name)
    for name in CHOOSE_EARLY:
        importlib.import_module(name)
    sysconfig.get_config_vars()
    for name in ("listdir", "lstat", "open", "readlink", "scandir", "stat"):
        setattr(os, name, _without_folders(getattr(os, name)))
    sys.addaudithook(_opens)
    setattr(platform, "system", lambda: "Darwin")  # noqa: B010 - mypy knows no other assignment
    sys.platform = "darwin"


def _absent(path: object) -> bool:
    name = os.fsdecode(path) if isinstance(path, str | bytes | os.PathLike) else ""
    if not any(name == folder or name.startswith(f"{folder}/") for folder in ABSENT):
        return False
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith(READS_PROC):
            return False
        frame = frame.f_back  # type: ignore[assignment]
    return True


def _opens(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open" and _absent(arguments[0]):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), arguments[0])


def _without_folders(function: Callable[..., Any]) -> Callable[..., Any]:
    def asked(path: Any = ".", *others: Any, **named: Any) -> Any:
        if _absent(path):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return function(path, *others, **named)

    return asked


def main() -> None:
    """Run the command line, or a program."""
    take_away()
    if sys.argv[1] == "-c":
        exec(sys.argv[2], {"__name__": "__main__"})
        return
    from canary.cli import main as canary

    canary()


if __name__ == "__main__":
    main()
