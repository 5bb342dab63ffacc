"""Keeps a second launch of a command from touching what its first launch left. Standard library.

The probe runs a user's command again. Until it trains, it does what the command does at its start:
opens a log, empties an output folder. Here an audit hook looks at what would change a file that the
first launch wrote. A file opened for writing is copied first, and put back when the probe is over;
anything that would delete, rename or truncate one ends the process before it happens.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NoReturn

COPIED_UP_TO = 64 << 20
"""Bytes of a file that is copied before it is written to; a larger one ends the process."""
LOOKED_AT = 10_000
"""Files of a folder that are looked at before it may be removed."""
ENDED = 70
"""Exit code of a process that was ended here."""
WRITES = os.O_WRONLY | os.O_RDWR | os.O_APPEND | os.O_TRUNC
CHANGING = ("os.remove", "os.rename", "os.rmdir", "os.truncate", "shutil.rmtree", "shutil.move")
CACHES = ("HF_HOME", "HF_DATASETS_CACHE", "HF_HUB_CACHE", "XDG_CACHE_HOME", "TORCH_HOME")


class Guard:
    """Looks after files that were last written between two moments, seconds since the epoch."""

    def __init__(self, since: float, until: float, scratch: Path, marks: Path) -> None:
        self._since, self._until = since, until
        self._scratch = scratch
        self._marks = marks
        self._free = [folder.resolve() for folder in _free_folders(scratch.parents[1])]
        self._copied: set[Path] = set()
        self._busy = False

    def hook(self, event: str, args: tuple[Any, ...]) -> None:
        """An audit hook: raises nothing, and does nothing about what it does not know."""
        if self._busy or (event != "open" and event not in CHANGING):
            return
        self._busy = True
        try:
            if event == "open":
                path, _, flags = args
                if isinstance(flags, int) and flags & WRITES:
                    self._opened(_resolved(path, None))
                return
            descriptor = args[-1] if isinstance(args[-1], int) and args[-1] >= 0 else None
            paths = args[:2] if event in ("os.rename", "shutil.move") else args[:1]
            for path in paths:
                self._changed(event, _resolved(path, descriptor))
        finally:
            self._busy = False

    def _opened(self, path: Path | None) -> None:
        if path is None or path in self._copied or not self._is_kept(path):
            return
        if path.stat().st_size > COPIED_UP_TO:
            self._end("open", path)
        self._copied.add(path)
        copy = self._scratch / f"kept.{os.getpid()}.{len(self._copied)}"
        shutil.copy2(path, copy)
        copy.with_suffix(f"{copy.suffix}.json").write_text(json.dumps(str(path)), encoding="utf-8")

    def _changed(self, event: str, path: Path | None) -> None:
        if path is None:
            return
        if path.is_dir() and not path.is_symlink():
            if any(map(self._is_kept, islice(path.rglob("*"), LOOKED_AT))):
                self._end(event, path)
        elif self._is_kept(path):
            self._end(event, path)

    def _is_kept(self, path: Path) -> bool:
        """Whether the first launch left this file, outside of caches and temporary folders."""
        if "__pycache__" in path.parts or any(map(path.is_relative_to, self._free)):
            return False
        try:
            found = path.stat()
        except OSError:
            return False
        return stat.S_ISREG(found.st_mode) and self._since <= found.st_mtime <= self._until

    def _end(self, event: str, path: Path) -> NoReturn:
        """Nobody's handler runs: it could go on to do what this is here to prevent."""
        words = {"open": "write over", "os.rename": "rename", "shutil.move": "move"}
        text = f"{words.get(event, 'remove')} {path}"
        (self._marks / f"guarded.{os.getpid()}").write_text(text, encoding="utf-8")
        os._exit(ENDED)


def _free_folders(run: Path) -> Iterator[Path]:
    """Where a command may do as it likes: the run's own folder, caches, temporary files."""
    yield from (run, Path("/dev"), Path("/proc"), Path.home() / ".cache")
    yield from (Path(os.environ[name]) for name in CACHES if os.environ.get(name))
    temporary = Path(tempfile.gettempdir())
    if not Path.cwd().is_relative_to(temporary):
        yield temporary


def _resolved(path: Any, descriptor: int | None) -> Path | None:
    """The absolute path, of one that may be relative to an open folder."""
    if isinstance(path, int) or path is None:
        return None
    name = Path(os.fsdecode(path))
    if descriptor is not None and not name.is_absolute():
        name = Path(f"/proc/self/fd/{descriptor}").resolve() / name
    return Path.cwd() / name


def begin() -> None:
    """Looks after what the environment names, where it names something."""
    wanted = os.environ.get("CANARY_KEEP")
    if wanted:
        since, until, scratch = wanted.split(":", 2)
        marks = Path(os.environ["CANARY_MARKS"])
        guard = Guard(float(since), float(until), Path(scratch), marks)
        sys.addaudithook(guard.hook)


def put_back(scratch: Path) -> list[str]:
    """Puts back what was copied, when every process of the launch is gone; returns the paths."""
    done = []
    for note in sorted(scratch.glob("kept.*.json")):
        path = json.loads(note.read_text(encoding="utf-8"))
        shutil.copy2(note.with_suffix(""), path)
        done.append(path)
    return done
