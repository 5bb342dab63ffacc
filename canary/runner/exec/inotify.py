"""Counts writes to the files of some folders by any process, with Linux's inotify."""

from __future__ import annotations

import ctypes
import os
import struct
import threading
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

CLOSED_AFTER_WRITING, OPENED, MOVED_HERE, OVERFLOW, GONE = 0x8, 0x20, 0x80, 0x4000, 0x8000
"""Numbers of `sys/inotify.h`."""
HEADER = struct.Struct("iIII")
CHUNK = 1 << 16
PATIENCE_S = 10.0


class FileWrites:
    """Counts from its construction on: each close after writing, and each move into a folder.
    Without inotify it counts nothing."""

    def __init__(self, folders: Iterable[Path]) -> None:
        self._folders: dict[int, Path] = {}
        self._found: Counter[Path] | None = Counter()
        self._reader: threading.Thread | None = None
        try:
            self._libc = ctypes.CDLL(None)
            self._descriptor = self._libc.inotify_init1(os.O_CLOEXEC)
        except (AttributeError, OSError):
            return
        if self._descriptor < 0:
            return
        # The kernel merges equal events in a row until the first is read: OPENED separates them.
        mask = CLOSED_AFTER_WRITING | OPENED | MOVED_HERE
        self._last = self._libc.inotify_add_watch(self._descriptor, b"/", GONE)
        for folder in folders:
            number = self._libc.inotify_add_watch(self._descriptor, os.fsencode(folder), mask)
            if number >= 0:
                self._folders[number] = folder
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        while True:
            chunk = os.read(self._descriptor, CHUNK)
            offset = 0
            while offset < len(chunk):
                number, mask, _, length = HEADER.unpack_from(chunk, offset)
                name = chunk[offset + HEADER.size :][:length].rstrip(b"\0")
                offset += HEADER.size + length
                if number == self._last and mask & GONE:
                    return  # `end` was called
                self._count(number, mask, name)

    def _count(self, number: int, mask: int, name: bytes) -> None:
        if mask & OVERFLOW:
            self._found = None
        written = mask & (CLOSED_AFTER_WRITING | MOVED_HERE)
        if self._found is not None and written and name and number in self._folders:
            self._found[self._folders[number] / os.fsdecode(name)] += 1

    def end(self) -> Counter[Path] | None:
        """Return the number of writes to each file; None if events were lost."""
        if self._reader is not None:
            self._libc.inotify_rm_watch(self._descriptor, self._last)
            self._reader.join(PATIENCE_S)
            if self._reader.is_alive():
                return None
            os.close(self._descriptor)
        return self._found
