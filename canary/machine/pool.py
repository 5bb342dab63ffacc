"""The pool of this user's devices on this machine: programs that train share them by locks.

A device is a byte of one lock file. A child can inherit the open file, so its devices are free at
the moment when it ends, however it does.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from canary.errors import MachineError, writing
from canary.machine.environment import usable_cores
from canary.machine.gpu import list_devices, visible

FIRST_CORE = 4096
"""Byte of the first core; those before are GPUs."""
FLOCK = "hhqqi4x"
"""The C structure `flock` of 64-bit Linux: type, whence, start, length, process."""


def pool_file() -> Path:
    """Return the lock file of this user's devices on this machine."""
    folder = Path(tempfile.gettempdir()) / f"rlhf-canary-{os.getuid()}"
    with writing(folder, "set TMPDIR"):
        folder.mkdir(mode=0o700, exist_ok=True)
    if folder.is_symlink() or folder.stat().st_uid != os.getuid():
        raise MachineError(f"{folder} belongs to somebody else", "remove it, or set TMPDIR")
    return folder / "devices.lock"


def opened(path: Path) -> int:
    """Open a lock file, and make it if it is missing."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def lock_byte(file: int, byte: int, *, wait: bool = False) -> bool:
    """Lock a byte for this open file and all who inherit it. Return False if another has it and
    this does not wait."""
    wanted = struct.pack(FLOCK, fcntl.F_WRLCK, os.SEEK_SET, byte, 1, 0)
    try:
        fcntl.fcntl(file, fcntl.F_OFD_SETLKW if wait else fcntl.F_OFD_SETLK, wanted)
    except (BlockingIOError, PermissionError):
        return False
    return True


def usable_bytes() -> list[int]:
    """Return the bytes of what a training here may use: the visible GPUs, else the cores."""
    gpus = visible(list_devices().found, os.environ.get("CUDA_VISIBLE_DEVICES"))
    if gpus:
        return sorted(device.index for device in gpus)
    return [FIRST_CORE + core for core in usable_cores() or ()]


@contextlib.contextmanager
def all_devices(waits: Callable[[], None], path: Path | None = None) -> Iterator[int]:
    """Hold all devices that a training here may use; wait for those that others hold.

    Yield the open file of the locks, for a child to inherit. `waits` is called once if it has to
    wait. All who wait take devices in the same order, so none of them waits forever.

    Raises:
        MachineError: the file cannot be opened.
    """
    path = path or pool_file()
    with writing(path, "set TMPDIR"):
        file = opened(path)
    told = False
    try:
        for byte in usable_bytes():
            if not lock_byte(file, byte):
                if not told:
                    waits()
                told = lock_byte(file, byte, wait=True)
        yield file
    finally:
        os.close(file)
