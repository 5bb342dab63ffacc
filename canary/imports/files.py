"""The files of a source: found without following links, with bounds on number, depth and size."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
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

    @property
    def folder(self) -> str:
        """Its folder, relative to the source."""
        return self.name.rpartition("/")[0]

    @property
    def base(self) -> str:
        """Its name without folders."""
        return self.path.name

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

    def start(self) -> bytes:
        """Return its first bytes, empty if it cannot be read."""
        try:
            with self.open(LARGEST_BINARY) as stream:
                return stream.read(SNIFFED)
        except (InputError, OSError):
            return b""

    def digest(self, size: int) -> str:
        """Return a hash of its first bytes; empty if it cannot be read."""
        digest = hashlib.sha256()
        try:
            with self.open(LARGEST_BINARY) as stream:
                while size > 0 and (block := stream.read(min(size, 1 << 20))):
                    digest.update(block)
                    size -= len(block)
        except (InputError, OSError):
            return ""
        return digest.hexdigest()


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
        return [Found(source.resolve(), source.name, state.st_size)]
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
            found.append(Found(Path(entry.path), name, state.st_size))
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

    files: dict[str, tuple[int, str]]
    """Name -> bytes, hash."""

    @classmethod
    def of(cls, source: Path) -> Before:
        """Return the files of a source now. An absent source has none."""
        found = files_of(source, Telling()) if source.exists() else []
        return cls({one.name: (one.size, one.digest(one.size)) for one in found})

    def left_since(self, found: list[Found], telling: Telling) -> list[Found]:
        """Return the files that were written since.

        Raises:
            InputError: there are none, or the launch appended to one.
        """
        left = []
        for one in found:
            size, digest = self.files.get(one.name, (0, ""))
            if not size or one.size < size or one.digest(size) != digest:
                left.append(one)
            elif one.size == size:
                telling.tell("older than the launch, so it was not read", one.name)
            else:
                raise InputError(
                    f"{one.name} was there before the launch, which appended to it",
                    "let each launch write its own file",
                )
        if not left:
            what = f"; all {len(found):,} of its files are older" if found else ""
            raise InputError(f"the launch left nothing in the source{what}", WHERE_IT_WRITES)
        return left
