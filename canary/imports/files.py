"""The files of a source: found without following links, with bounds on number, depth and size."""

from __future__ import annotations

import hashlib
import io
import os
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

from canary.config.output import OUTPUT_DIR
from canary.errors import InputError, printable
from canary.imports.entries import Telling
from canary.record.jsonio import open_regular

MOST_FILES = 10_000
DEEPEST = 12
"""Levels of folders below the source."""
LARGEST_TEXT = 512 << 20
"""Bytes of a file of text."""
LARGEST_BINARY = 2 << 30
LARGEST_DOCUMENT = 128 << 20
"""Bytes of a file that is read as a whole."""
LONGEST_LINE = 4 << 20
MOST_LINES = 2_000_000
"""Lines of a file of rows."""
LARGEST_HASHED = 256 << 20
"""Bytes of a file that is compared with its state before a launch."""
STORES = (".db", ".sqlite", ".sqlite3")
STORE_MAGIC = b"SQLite format 3\0"
UTF16 = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}
"""First bytes of a text -> its encoding: PowerShell's `>` writes so."""
SNIFFED = 64 << 10
"""Bytes that are read to find a file's format."""
WHERE_IT_WRITES = "let `import.source` name what the command writes"


@dataclass(frozen=True)
class Found:
    """A file of the source."""

    path: Path
    name: str
    """Relative to the source, for people."""
    size: int
    changed_ns: int
    skip: int = 0
    """Bytes at its start that an earlier program wrote: they are not read."""

    @property
    def folder(self) -> str:
        """Its folder, relative to the source."""
        return self.name.rpartition("/")[0]

    @property
    def base(self) -> str:
        """Its name without folders."""
        return self.path.name

    @property
    def is_store(self) -> bool:
        """Whether it is SQLite's, by its ending and its first bytes."""
        return self.path.suffix in STORES and self.start().startswith(STORE_MAGIC)

    def open(self, largest: int) -> BinaryIO:
        """Open it.

        Raises:
            InputError: it cannot be opened, is a link or a pipe, or is too large.
        """
        try:
            if self.path.is_symlink():
                raise OSError(0, "a link")
            return open_regular(self.path, largest)
        except OSError as error:
            raise InputError(f"cannot read {self.name}: {error.strerror or error}") from error

    def require_whole(self) -> None:
        """Raise InputError if a library cannot read it by its path: as `open`, or only its end
        counts."""
        self.open(LARGEST_BINARY).close()
        if self.skip:
            raise InputError(
                f"{self.name} was there before the launch, which appended to it",
                "let each launch write its own file",
            )

    def text(self, largest: int = LARGEST_TEXT) -> BinaryIO:
        """Open its text behind what is skipped. UTF-16 becomes UTF-8.

        Raises:
            InputError: as `open`, or it is UTF-16 and larger than a document may be.
        """
        stream = self.open(largest)
        encoding = UTF16.get(stream.read(2))
        stream.seek(self.skip)
        if encoding is None:
            return stream
        with stream:
            if self.size > LARGEST_DOCUMENT:
                what = f"{self.name} has more than {LARGEST_DOCUMENT >> 20} MiB of UTF-16"
                raise InputError(what, "save it as UTF-8")
            stream.seek(max(self.skip, 2))
            text = stream.read(LARGEST_DOCUMENT).decode(encoding, "replace")
            return io.BytesIO(text.encode())

    def content(self, largest: int = LARGEST_DOCUMENT) -> bytes:
        """Return its text as bytes. Raises InputError as `text`."""
        with replace(self, skip=0).text(largest) as stream:
            return stream.read(largest)

    def start(self) -> bytes:
        """Return its first bytes, empty if it cannot be read."""
        try:
            with self.text(1 << 62) as stream:
                return stream.read(SNIFFED)
        except (InputError, OSError):
            return b""


def files_of(source: Path, telling: Telling) -> list[Found]:
    """Return the regular files of a source, a file or a folder, by name. Links and pipes in it are
    told and left out; a link that the user named is followed.

    Raises:
        InputError: there is no such source, it cannot be read, or it has too many files.
    """
    try:
        state = source.stat()
    except (OSError, ValueError) as error:
        raise InputError(
            f"{printable(str(source))} does not exist", "name what the training left"
        ) from error
    if stat.S_ISREG(state.st_mode):
        return [Found(source.resolve(), source.name, state.st_size, state.st_mtime_ns)]
    if not stat.S_ISDIR(state.st_mode):
        raise InputError(
            f"{printable(str(source))} is not a regular file or a folder", "name one of them"
        )
    found = []
    for number, (entry, name) in enumerate(_walk(source.resolve(), telling)):
        if number >= MOST_FILES:
            raise InputError(
                f"{printable(str(source))} has more than {MOST_FILES:,} files",
                "name the folder of one run in it",
            )
        state = entry.stat(follow_symlinks=False)
        if stat.S_ISREG(state.st_mode):
            found.append(Found(Path(entry.path), name, state.st_size, state.st_mtime_ns))
        elif not stat.S_ISDIR(state.st_mode):
            kind = "a link" if stat.S_ISLNK(state.st_mode) else "a pipe or a device"
            telling.tell(f"{kind} was not followed", name)
    return sorted(found, key=lambda one: one.name)


def _walk(root: Path, telling: Telling) -> Iterator[tuple[os.DirEntry[str], str]]:
    """Yield everything below a folder, without hidden folders and our own runs."""
    waiting = [(root, "")]
    while waiting:
        folder, prefix = waiting.pop()
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    name = f"{prefix}{entry.name}"
                    yield entry, name
                    if entry.is_dir(follow_symlinks=False):
                        hidden = entry.name.startswith(".") or entry.name == OUTPUT_DIR
                        if name.count("/") >= DEEPEST:
                            telling.tell(f"folders below {DEEPEST} levels were not read", name)
                        elif not hidden:
                            waiting.append((Path(entry.path), f"{name}/"))
        except OSError as error:
            telling.tell(f"the folder cannot be read: {error.strerror}", prefix or str(root.name))


@dataclass(frozen=True)
class Before:
    """The files that a source had before a launch: what they hold is not what it left."""

    files: dict[str, tuple[int, int, str]]
    """Name -> bytes, time of the last change in ns, hash; of a store the state of its log."""
    moment: float = 0.0
    """When this was noted, in seconds since the epoch."""

    @classmethod
    def of(cls, source: Path) -> Before:
        """Return the files of a source now. An absent source has none."""
        found = files_of(source, Telling()) if source.exists() else []
        known = {one.name: (one.size, one.changed_ns, _digest(one, one.size)) for one in found}
        return cls(known, time.time())

    def left_since(self, found: list[Found], telling: Telling) -> list[Found]:
        """Return the files that were written since, and of a file that grew only the new part.

        Raises:
            InputError: there are none.
        """
        left = []
        for one in found:
            size, changed_ns, digest = self.files.get(one.name, (0, 0, ""))
            same = (one.size, one.changed_ns) == (size, changed_ns)
            if one.name not in self.files:
                left.append(one)
            elif one.is_store and not (same and _log_of(one) == digest):
                left.append(one)  # only the runs count that began since
            elif not same and not digest:
                what = "it was there before the launch and is too large to tell what is new"
                telling.tell(what, one.name)
            elif not same and (one.size < size or _digest(one, size) != digest):
                left.append(one)
            elif one.size == size:
                telling.tell("older than the launch, so it was not read", one.name)
            else:
                telling.tell("it grew: only what this launch wrote was read", one.name)
                left.append(replace(one, skip=size))
        if not left:
            what = f"; all {len(found):,} of its files are older" if found else ""
            raise InputError(f"the launch left nothing in the source{what}", WHERE_IT_WRITES)
        return left


def _log_of(store: Found) -> str:
    """Return the size and the last change of a store's write-ahead log; `none` without one."""
    try:
        state = store.path.with_name(f"{store.base}-wal").lstat()
    except OSError:
        return "none"
    return f"{state.st_size} {state.st_mtime_ns}"


def _digest(one: Found, size: int) -> str:
    """Return a hash of a file's first bytes; empty if it is too large or cannot be read."""
    if one.is_store:
        return _log_of(one)
    if size > LARGEST_HASHED:
        return ""
    digest = hashlib.sha256()
    try:
        with one.open(LARGEST_BINARY) as stream:
            while size > 0 and (block := stream.read(min(size, 1 << 20))):
                digest.update(block)
                size -= len(block)
    except (InputError, OSError):
        return ""
    return digest.hexdigest()
