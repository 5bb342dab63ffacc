"""Opens files that a stranger may have written or named, and replaces whole files."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

LARGEST = 64 << 20
"""Bytes of a file that is read as a whole."""


def open_regular(path: Path, largest: int = LARGEST, *, follow: bool = True) -> BinaryIO:
    """Open a file of a stranger. A pipe or a device could hold its reader for ever. `follow`:
    whether it may be a link.

    Raises:
        OSError: it cannot be opened, is not a regular file, or has more than `largest` bytes.
    """
    links = 0 if follow else os.O_NOFOLLOW
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | links)
    found = os.fstat(handle)
    why = ""
    if not stat.S_ISREG(found.st_mode):
        why = "not a regular file"
    elif found.st_size > largest:
        why = f"larger than {largest >> 20} MiB"
    if why:
        os.close(handle)
        raise OSError(errno.EINVAL, why, str(path))
    return os.fdopen(handle, "rb")


def content_of(path: Path, largest: int = LARGEST, *, follow: bool = True) -> bytes:
    """Return a file's bytes.

    Raises:
        OSError: as `open_regular`.
    """
    with open_regular(path, largest, follow=follow) as stream:
        return stream.read(largest)


class Descriptor:
    """A descriptor that stays open in a user's process. A program may close all it does not know,
    and open files of its own under the same numbers: those are never read, written or closed."""

    def __init__(self, number: int) -> None:
        self.number = number
        self._file = _identity(number)

    def is_ours(self) -> bool:
        """Whether nobody closed it."""
        try:
            return _identity(self.number) == self._file
        except OSError:
            return False

    def close(self) -> None:
        """Close it, unless somebody did."""
        if self.is_ours():
            os.close(self.number)


def _identity(number: int) -> tuple[int, int]:
    found = os.fstat(number)
    return found.st_dev, found.st_ino


class KeptFile:
    """A file that stays open, and is opened again if the program closed it. Raises what `os.open`
    does."""

    def __init__(self, path: str | Path, flags: int = os.O_RDONLY) -> None:
        self._path, self._flags = path, flags | os.O_CLOEXEC
        self._kept = self._opened()

    def _opened(self) -> Descriptor:
        found = Descriptor(os.open(self._path, self._flags, 0o666))
        self.close = weakref.finalize(self, found.close)
        return found

    def _number(self) -> int:
        if not self._kept.is_ours():
            self._kept = self._opened()
        return self._kept.number

    def read(self, size: int = 128) -> bytes:
        """Return the first bytes, as they are now: a microsecond for a file of the kernel."""
        return os.pread(self._number(), size, 0)

    def write(self, content: bytes) -> None:
        """Write all of it."""
        while content:
            content = content[os.write(self._number(), content) :]


def replace_file(path: Path, text: str) -> None:
    """Write `text` to `path` so that a reader sees either the old content or the new.

    Raises:
        OSError: it cannot be written; the old content stays.
    """
    replace_files({path: text})


def replace_files(texts: Mapping[Path, str]) -> None:
    """Replace files as `replace_file`. None is replaced before all texts are on the disk.

    Raises:
        OSError: a file cannot be written.
    """
    staged: dict[Path, Path] = {}
    try:
        for path, text in texts.items():
            handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
            staged[path] = Path(temporary)
            with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as stream:
                stream.write(text)
                stream.flush()
                os.fsync(handle)
            # mkstemp makes files private, but everyone who may read the folder may read a record.
            staged[path].chmod(0o644)
        for path, made in staged.items():
            made.replace(path)
    finally:
        for made in staged.values():
            made.unlink(missing_ok=True)
