"""Puts back what was set aside for a launch of the user's command, and undoes what it changed.

All of it is written down in a journal before it is moved, and may be done again where it was
interrupted.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from canary.runner.left import Note, caches, firsts, is_below, is_folder, listings, read_notes
from canary.runner.noting import COPIED, FOLDER, KEPT, LINK, NEW, TEMPORARY, copy_file


@dataclass
class Journal:
    """What was moved and placed, in order, and whether what the launch made is gone again."""

    file: Path
    launch: int | None = None
    items: dict[Path, dict[str, Any]] = field(default_factory=dict)
    times: dict[Path, tuple[int, int]] = field(default_factory=dict)
    cleared: bool = False

    @classmethod
    def read(cls, file: Path) -> Journal:
        """What was written; a line that was cut short was about something not yet done."""
        journal = cls(file)
        for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else []:
            with contextlib.suppress(ValueError):
                journal._take(json.loads(line))
        return journal

    def write(self, entry: dict[str, Any]) -> None:
        """Before it is done."""
        self._take(entry)
        with self.file.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(entry) + "\n")

    def _take(self, entry: dict[str, Any]) -> None:
        self.launch = entry.get("launch", self.launch)
        self.cleared = entry.get("cleared", self.cleared)
        if "path" in entry:
            self.items.setdefault(Path(entry["path"]), {}).update(entry)
        if "times" in entry:
            self.times[Path(entry["times"])] = tuple(entry["ns"])


def look(path: Path) -> list[int] | None:
    """What tells one state of a file from another."""
    try:
        found = path.lstat()
    except OSError:
        return None
    return [found.st_ino, found.st_size, found.st_mtime_ns]


def put_back(root: Path) -> list[str]:
    """Removes what the launch made and moves back what was set aside; to be called when its
    processes are gone, and again where it was interrupted. Returns what a user must know."""
    journal = Journal.read(root / "journal")
    if journal.launch is None:
        return []  # nothing was set aside
    launch = root / f"launch{journal.launch}"
    notes = read_notes(launch)
    first = firsts(notes)
    warm = caches(notes) | caches(read_notes(root / "launch0"))
    written = {
        path
        for path, note in first.items()
        if note.kind in (NEW, TEMPORARY) and path not in warm and not is_below(path, warm)
    }
    if not journal.cleared:
        for path in sorted(written):
            _remove(path)
        _restore(launch, first, journal)
        journal.write({"cleared": True})
    folders = {*listings(notes)}
    told = []
    for path, item in reversed(journal.items.items()):
        known = path in first or (not item.get("placed") and path.parent in folders)
        try:
            told += _item_back(path, item, known, root / "found")
        except OSError as error:
            told.append(f"{path} cannot be moved back, it is at {item.get('at')}: {error.strerror}")
    for folder, times in journal.times.items():
        with contextlib.suppress(OSError):
            os.utime(folder, ns=times)
    if not any(_is_away(item) for item in journal.items.values()):
        _tidy(root, journal)
    return told


def _is_away(item: dict[str, Any]) -> bool:
    return item.get("at") is not None and os.path.lexists(item["at"])


def _item_back(path: Path, item: dict[str, Any], known: bool, found: Path) -> list[str]:
    """Moves one item back; what is neither ours nor the launch's is kept in `found`."""
    if item.get("at") is not None and not _is_away(item):
        return []  # never moved, or back already
    told = []
    if _in_the_way(path, item, known):
        kept = found / f"{time.time_ns()}" / path.name
        kept.parent.mkdir(parents=True)
        path.rename(kept)
        told.append(
            f"a shell or another program wrote {path} during the second launch; the first "
            f"launch's file is back in place, the newer one is at {kept}"
        )
    else:
        _remove(path)
    if item.get("at") is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        Path(item["at"]).rename(path)
    return told


def _in_the_way(path: Path, item: dict[str, Any], known: bool) -> bool:
    """Whether something is there that is neither ours nor the launch's."""
    found = look(path)
    if found is None or known:
        return False
    if is_folder(path):
        return any(path.iterdir())
    return not item.get("placed") or item.get("is") not in (None, found)


def _restore(launch: Path, first: dict[Path, Note], journal: Journal) -> None:
    """What the launch changed though the ones before it had not."""
    for path, note in sorted(first.items()):
        if path in journal.items:
            continue
        if note.kind == FOLDER and not path.is_dir():
            _remove(path)
            path.mkdir(int(note.more, 8), parents=True)
        elif note.kind == LINK:
            _remove(path)
            path.symlink_to(note.more)
        elif note.kind == KEPT:
            _restore_file(launch / note.more.rpartition("/")[0], path)


def _restore_file(kept: Path, path: Path) -> None:
    """The file itself where it is what was kept, else its content in place."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not kept.name.startswith(COPIED):
        if not (path.exists() and path.samefile(kept)):
            _remove(path)
            kept.rename(path)
    elif kept.exists():
        if not path.is_file() or path.is_symlink():
            _remove(path)
        copy_file(str(kept), str(path))


def _remove(path: Path) -> None:
    if is_folder(path):
        shutil.rmtree(path, ignore_errors=True)
    with contextlib.suppress(OSError):
        path.unlink()


def _tidy(root: Path, journal: Journal) -> None:
    """Nothing is left but what the next launch needs, and what another program wrote."""
    beside = {Path(item["at"]).parents[1] for item in journal.items.values() if item.get("at")}
    for folder in {*beside, root / "aside", root / f"launch{journal.launch}"}:
        shutil.rmtree(folder, ignore_errors=True)
    for name in ("journal", "README.txt"):
        (root / name).unlink(missing_ok=True)
