"""Opens files that a stranger may have written or named, and replaces whole files."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
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
