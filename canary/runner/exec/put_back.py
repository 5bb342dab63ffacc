"""Puts back what was set aside for a launch of the user's command, and undoes its changes.

A journal lists every move before it is made, so an interrupted run of this can be repeated. Only
files that the launch noted, or that were placed for it, are removed. Everything else stays; a file
whose place is taken goes to the folder `found`.
"""

from __future__ import annotations

import contextlib
import filecmp
import json
import os
import shutil
import stat
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from canary.runner.exec.file_notes import COPIED, FOLDER, KEPT, LINK, WRITTEN_TO, copy_file
from canary.runner.exec.free_paths import free_of, is_free
from canary.runner.exec.left_files import (
    MADE_HERE,
    Note,
    caches,
    first_notes,
    is_below,
    is_folder,
    is_sound,
    read_notes,
)

NOT_COUNTED: Counter[Path] = Counter()
BESIDE = "canary-set-aside-"
"""Prefix of the folder for what was set aside on another disk."""
ANOTHER = "another program wrote to it during the second launch; that content is at"
LATER_NS = 2 * 10**9
"""When run by hand: a file that changed this long after the last note is the user's newer work."""


@dataclass
class Journal:
    """What was moved and placed, in order, and how far it is put back."""

    file: Path
    launch: int | None = None
    items: dict[Path, dict[str, Any]] = field(default_factory=dict)
    times: dict[Path, tuple[int, int]] = field(default_factory=dict)
    removed: bool = False
    """Whether the files that the launch made are removed."""
    cleared: bool = False
    """Whether the files that it changed are restored too."""

    @classmethod
    def read(cls, file: Path) -> Journal:
        """Read the journal. A line that was cut short describes a move that was not made."""
        journal = cls(file)
        words = file.read_text(encoding="utf-8", errors="replace") if file.exists() else ""
        for line in words.splitlines():
            with contextlib.suppress(ValueError, TypeError, AttributeError, KeyError):
                journal._take(json.loads(line))
        return journal

    def write(self, entry: dict[str, Any]) -> None:
        """Append an entry, before the move is made."""
        self._take(entry)
        with self.file.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(entry) + "\n")

    def _take(self, entry: dict[str, Any]) -> None:
        self.launch = entry.get("launch", self.launch)
        self.removed = entry.get("removed", self.removed)
        self.cleared = entry.get("cleared", self.cleared)
        if "path" in entry:
            self.items.setdefault(Path(entry["path"]), {}).update(entry)
        if "times" in entry:
            self.times[Path(entry["times"])] = tuple(entry["ns"])


def look(path: Path) -> list[int] | None:
    """Return inode, size and time, which differ between two states of a file."""
    try:
        found = path.lstat()
    except OSError:
        return None
    return [found.st_ino, found.st_size, found.st_mtime_ns]


def put_back(
    root: Path, *, by_hand: bool = False, written: Counter[Path] | None = NOT_COUNTED
) -> list[str]:
    """Remove what the launch made, and move back what was set aside. Return notes for the user.

    Call it when the launch's processes are gone, and again if it was interrupted. `by_hand`: files
    newer than the launch's last note stay. `written`: writes to each file during the launch, by any
    process; None if unknown."""
    journal = Journal.read(root / "journal")
    if journal.launch is None:
        return []  # nothing was set aside
    return _Undo(root, journal, by_hand, written).run()


class _Undo:
    """Undoes one launch. An error at one path becomes a note, and the rest goes on."""

    def __init__(
        self, root: Path, journal: Journal, by_hand: bool, written: Counter[Path] | None
    ) -> None:
        self._root = root
        self._journal = journal
        self._launch = root / f"launch{journal.launch}"
        notes = read_notes(self._launch)
        free = free_of(str(self._launch))
        self._warm = caches(notes, free) | caches(read_notes(root / "launch0"), free)
        self._first = {
            path: note for path, note in first_notes(notes).items() if not is_free(str(path), free)
        }
        noted = Counter(note.path for note in notes if note.kind == WRITTEN_TO)
        self._others = {path for path in noted if written is None or written[path] > noted[path]}
        """Files of the launch that another program wrote to meanwhile."""
        self._notes: list[str] = []
        self._newest: int | None = None
        if by_hand:
            self._newest = max((note.moment for note in notes), default=0) + LATER_NS

    def run(self) -> list[str]:
        """Undo everything, folders before their content."""
        journal = self._journal
        restored = True
        if not journal.removed:
            self._clear()
            self._wrote("removed")
        if not journal.cleared:
            # Paths below an item, or in a folder that the launch made, did not exist before it.
            items = set(journal.items)
            new = items | {path for path, note in self._first.items() if note.kind in MADE_HERE}
            for path, note in sorted(self._first.items()):
                if path not in items and not is_below(path, new):
                    restored &= self._try(path, self._restore, note)
            if restored:
                self._wrote("cleared")
        for path, item in reversed(journal.items.items()):
            self._try(path, self._item_back, item)
        for folder, times in journal.times.items():
            with contextlib.suppress(OSError, TypeError, ValueError):
                os.utime(folder, ns=times)
        if restored and not any(_is_away(item) for item in journal.items.values()):
            _tidy(self._root, journal)
        return self._notes

    def _wrote(self, what: str) -> None:
        with contextlib.suppress(OSError):  # a full disk: everything can be repeated
            self._journal.write({what: True})

    def _try(self, path: Path, what: Callable[[Path, Any], None], more: Any) -> bool:
        try:
            what(path, more)
            return True
        except (OSError, ValueError, TypeError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            self._notes.append(
                f"{path} cannot be put back, its earlier state is in {self._root}: {why}"
            )
            return False

    def _clear(self) -> None:
        """Remove what the launch made, the deepest first."""
        items = self._journal.items.items()
        back = {path for path, item in items if item.get("at") and not _is_away(item)}
        kept = back | self._warm
        for path, note in self._first.items():
            if note.kind in MADE_HERE and is_folder(path) and is_sound(path) and path not in kept:
                path.chmod(path.stat().st_mode | stat.S_IRWXU)  # else its content cannot be removed
        for path, note in sorted(self._first.items(), reverse=True):
            if note.kind in MADE_HERE and path not in kept and not is_below(path, kept):
                self._try(path, self._made, note)

    def _made(self, path: Path, _: Note) -> None:
        if look(path) is None or self._stays(path, known=True):
            return
        if not is_folder(path):
            self._remove(path)
            return
        with contextlib.suppress(OSError):
            path.rmdir()
        if is_folder(path) and path not in self._journal.items:
            self._notes.append(f"{path} stays: it holds files that the command did not write")

    def _stays(self, path: Path, *, known: bool) -> bool:
        """Whether this must not be removed; adds a note that says so."""
        why = None
        if not is_sound(path):
            why = "a folder above it is now a symlink"
        elif not known:
            why = "a shell or another program wrote it during the second launch"
        elif self._newest and not is_folder(path) and path.lstat().st_ctime_ns > self._newest:
            why = "it is newer than the second launch"
        if why is not None:
            self._notes.append(f"{path} stays as it is: {why}")
        return why is not None

    def _item_back(self, path: Path, item: dict[str, Any]) -> None:
        """Move one item back, if its place is free or can be cleared."""
        at = Path(item["at"]) if item.get("at") else None
        if at is not None and not _is_away(item):
            return  # never moved, or back already
        there = look(path)
        both = at is not None and is_folder(path) and is_folder(at)
        if at is not None and both and not item.get("placed"):
            self._merge(at, path)
            return
        if there is not None and not self._cleared(path, item, there):
            if at is not None:
                self._to_found(at, path)
            return
        if at is not None and not is_sound(path):
            self._notes.append(f"{path} is not moved back: its folder is now a symlink")
            self._to_found(at, path)
        elif at is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            at.rename(path)

    def _cleared(self, path: Path, item: dict[str, Any], there: list[int]) -> bool:
        """Clear an item's place of what the launch or the canary put there; whether it is free."""
        if is_folder(path):
            if is_sound(path):
                with contextlib.suppress(OSError):
                    path.rmdir()
                    return True
            self._notes.append(f"{path} stays: it holds files that the command did not write")
            return False
        placed = item.get("placed") and item.get("is") == there
        if item.get("placed") and item.get("is") is None:
            placed = self._newest is None  # interrupted while it was placed
        known = bool(placed or path in self._first)
        if placed:
            if not is_sound(path):
                return not self._stays(path, known=True)
        elif self._stays(path, known=known):
            return False
        self._remove(path)
        return True

    def _remove(self, path: Path) -> None:
        """Remove a file of the launch, or keep it in `found` if another program wrote to it."""
        if path not in self._others:
            path.unlink()
            return
        kept = self._found(path)
        path.rename(kept)
        self._notes.append(f"{path}: {ANOTHER} {kept}")

    def _found(self, path: Path) -> Path:
        """Return a new path in `found` for a file that cannot stay."""
        kept = self._root / "found" / f"{time.time_ns()}" / path.name
        kept.parent.mkdir(parents=True)
        return kept

    def _merge(self, at: Path, path: Path) -> None:
        """Move the content of `at` into this folder, which another program made anew."""
        if not is_sound(path):
            self._notes.append(f"{path} stays as it is: a folder above it is now a symlink")
            self._to_found(at, path)
            return
        for one in sorted(at.iterdir()):
            target = path / one.name
            if look(target) is None:
                one.rename(target)
            elif is_folder(one) and is_folder(target):
                self._merge(one, target)
            else:
                self._stays(target, known=False)
                self._to_found(one, target)
        with contextlib.suppress(OSError):
            at.rmdir()

    def _to_found(self, at: Path, path: Path) -> None:
        """Keep `at` in `found`, because its place `path` is taken, and note where."""
        beside = (one for one in at.parents if one.name.startswith(BESIDE))
        kept = next(beside, self._root) / "found" / f"{time.time_ns()}" / path.name
        kept.parent.mkdir(parents=True)
        at.rename(kept)
        self._notes.append(f"the first launch's {path} is at {kept}")

    def _restore(self, path: Path, note: Note) -> None:
        """Restore a path that only this launch changed."""
        if path in self._warm or is_below(path, self._warm):
            return
        if note.kind == FOLDER and not is_folder(path):
            if self._free(path, None):
                path.mkdir(parents=True)
                path.chmod(int(note.more, 8))
        elif note.kind == LINK:
            same = path.is_symlink() and str(path.readlink()) == note.more
            if not same and self._free(path, None):
                path.symlink_to(note.more)
        elif note.kind == KEPT:
            self._restore_file(self._launch / note.more.rpartition("/")[0], path)

    def _free(self, path: Path, kept: Path | None) -> bool:
        """Remove what the launch wrote to this place; whether it is now free."""
        if not is_sound(path) or look(path) is not None:
            if self._stays(path, known=True):
                self._keep(kept, path)
                return False
            if is_folder(path):
                path.rmdir()
            else:
                self._remove(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        return True

    def _keep(self, kept: Path | None, path: Path) -> None:
        if kept is not None and kept.exists():
            copy = self._found(path)
            shutil.copy2(kept, copy)
            self._notes.append(f"the earlier {path} is at {copy}")

    def _restore_file(self, kept: Path, path: Path) -> None:
        """Restore the kept file itself if it is a hard link, else its content."""
        if not kept.exists():
            if not path.exists():
                self._notes.append(f"{path} cannot be put back: its kept state is missing")
            return
        if not kept.name.startswith(COPIED):
            same = look(path) is not None and not path.is_symlink() and path.samefile(kept)
            if not same and self._free(path, kept):
                os.link(kept, path)
            return
        if _is_file(path) and is_sound(path):
            same = filecmp.cmp(kept, path, shallow=False)
            if not same and self._stays(path, known=True):
                self._keep(kept, path)
                return
            if path in self._others:
                shutil.copy2(path, copy := self._found(path))
                self._notes.append(f"{path}: {ANOTHER} {copy}")
        elif not self._free(path, kept):
            return
        copy_file(str(kept), str(path))


def _is_file(path: Path) -> bool:
    found = look(path)
    return found is not None and stat.S_ISREG(path.lstat().st_mode)


def _is_away(item: dict[str, Any]) -> bool:
    return item.get("at") is not None and os.path.lexists(item["at"])


def _tidy(root: Path, journal: Journal) -> None:
    """Remove everything but what the next launch needs, and what other programs wrote."""
    beside = {Path(item["at"]).parents[1] for item in journal.items.values() if item.get("at")}
    for folder in {root / "aside", root / f"launch{journal.launch}"}:
        shutil.rmtree(folder, ignore_errors=True)
    for folder in beside - {root / "aside"}:
        if not (folder / "found").exists():
            shutil.rmtree(folder, ignore_errors=True)
    for name in ("journal", "README.txt"):
        (root / name).unlink(missing_ok=True)
