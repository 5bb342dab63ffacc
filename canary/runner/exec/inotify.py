"""How often files in some folders are written to, by whoever does it: Linux's inotify."""

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
    """Counts from its making on. A file that is opened for writing and closed, or moved into its
    place, counts once each time. Nothing is counted where the system has no inotify."""

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
        # Equal events in a row are merged where nobody has read the first: an opening parts them.
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
            place = 0
            while place < len(chunk):
                number, mask, _, length = HEADER.unpack_from(chunk, place)
                name = chunk[place + HEADER.size :][:length].rstrip(b"\0")
                place += HEADER.size + length
                if number == self._last and mask & GONE:
                    return  # nobody watches any more
                self._count(number, mask, name)

    def _count(self, number: int, mask: int, name: bytes) -> None:
        if mask & OVERFLOW:
            self._found = None
        written = mask & (CLOSED_AFTER_WRITING | MOVED_HERE)
        if self._found is not None and written and name and number in self._folders:
            self._found[self._folders[number] / os.fsdecode(name)] += 1

    def end(self) -> Counter[Path] | None:
        """How often each file was written to; None where there was more than could be counted."""
        if self._reader is not None:
            self._libc.inotify_rm_watch(self._descriptor, self._last)
            self._reader.join(PATIENCE_S)
            if self._reader.is_alive():
                return None
            os.close(self._descriptor)
        return self._found
