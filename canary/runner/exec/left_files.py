"""The files that a launch left, which must be set aside before the next launch.

The notes of its processes name them (see `canary.runner.exec.file_notes`). One look at the folders
that they wrote to finds unnoticed writes.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from canary.runner.exec.file_notes import (
    BEGAN_AT,
    CACHE,
    COPIED,
    ENDED_AT,
    FOLDER,
    KEPT,
    LINKED,
    LISTED,
    LOOKED_AT,
    MADE_IN,
    NEW,
    OUTPUT,
    TEMPORARY,
    UNKEPT,
    UNNOTICED,
    WRITTEN_TO,
    is_older,
)
from canary.runner.exec.free_paths import (
    HUB,
    Free,
    free_of,
    is_free,
    is_hub_cache,
    is_within,
    started_in,
)

COPIED_BYTES = 4 << 30
"""Most bytes copied to restore the state before the launch."""
SMALL = 64 << 20
"""A kept file up to this many bytes is copied into place, and so stays for another launch."""
MADE_HERE = (NEW, TEMPORARY, MADE_IN)
"""Kinds of a first note for files that the launch itself made."""
BESIDE_CACHES = (".locks", "downloads", "CACHEDIR.TAG", "token", "stored_tokens", "version.txt")
TRAINING = "training"
"""The file in the folder of notes with the pid of the process to start again."""


class Refused(Exception):
    """A second launch could change what the first one left. The text says which path and why."""


@dataclass(frozen=True)
class Note:
    """One path as a process found it; `moment` in nanoseconds since the epoch."""

    moment: int
    kind: str
    path: Path
    more: str
    root: int
    """Pid of the first Python process in the chain that led to the writer."""


@dataclass(frozen=True)
class Item:
    """One path to set aside, if something is there, and its state before the launch."""

    path: Path
    moved: bool
    before: str | None = None
    """A kind of note; None if nothing was there."""
    more: str = ""
    """The kept file, the symlink's target, or the folder's mode."""
    beside: Path | None = None
    """A folder on the same disk that the launches do not touch."""


def read_notes(folder: Path) -> list[Note]:
    """Return the notes of all processes of a launch, oldest first."""
    found = []
    for file in folder.glob("notes.*"):
        root = int(file.name.split(".")[1])
        words = file.read_bytes().split(b"\0")
        at = 0
        while at + 4 <= len(words):
            moment, kind, path, more = words[at : at + 4]
            if moment.isdigit() and len(kind) == 1 and path.startswith(b"/"):
                texts = Path(os.fsdecode(path)), os.fsdecode(more)
                found.append(Note(int(moment), kind.decode(), *texts, root))
                at += 4
            else:
                at += 1  # a note that was cut short
    return sorted(found, key=lambda note: note.moment)


def first_notes(notes: list[Note]) -> dict[Path, Note]:
    """Return the first note of each path that a launch changed."""
    found: dict[Path, Note] = {}
    for note in notes:
        if note.kind not in (LISTED, CACHE, WRITTEN_TO, UNNOTICED):
            found.setdefault(note.path, note)
    return found


def listings(notes: list[Note]) -> dict[Path, set[str]]:
    """Return the names in each folder that a launch wrote to, before the launch."""
    found: dict[Path, set[str]] = {}
    for note in notes:
        if note.kind == LISTED:
            found.setdefault(note.path, set(note.more.split("/")))
    return found


def is_moved(kept: os.stat_result) -> bool:
    """Whether a kept file is moved into place, as it is too large to copy fast."""
    return kept.st_size > SMALL and kept.st_nlink == 1


def is_folder(path: Path) -> bool:
    """Whether it is a folder and no symlink to one."""
    return path.is_dir() and not path.is_symlink()


def is_below(path: Path, folders: set[Path]) -> bool:
    """Whether the path is in one of the folders, at any depth."""
    return any(parent in folders for parent in path.parents)


def is_sound(path: Path) -> bool:
    """Whether no folder above this path has become a symlink."""
    return os.path.realpath(path.parent) == str(path.parent)


def is_cache(path: Path, free: Free) -> bool:
    """Whether a folder is a cache by its place, or by what it holds."""
    if path.name.startswith(HUB):
        return is_hub_cache(str(path))
    return is_within(str(path), free)


def caches(notes: list[Note], free: Free) -> set[Path]:
    """Return the caches, which stay as a launch leaves them: of datasets and models in a place that
    the user chose, and new folders that hold only caches."""
    found = {note.path for note in notes if note.kind == CACHE}
    for path, note in first_notes(notes).items():
        if note.kind != NEW or not is_folder(path):
            continue
        inside = [*path.iterdir()]
        cached = [one for one in inside if one in found or is_cache(one, free)]
        if cached and all(one in cached or is_beside_cache(one) for one in inside):
            found.add(path)
    return found


def wandb_folders(notes: list[Note]) -> set[Path]:
    """Return folders that wandb made. A separate program writes there, only in the first launch."""
    found = {note.path for note in notes if note.kind in MADE_HERE and is_folder(note.path)}
    runs = {path for path in found if path.name.startswith(("run-", "offline-run-"))}
    runs = {path for path in runs if path.parent.name == "wandb"}
    return runs | {path.parent for path in runs if path.parent in found}


def is_beside_cache(path: Path) -> bool:
    """Whether this is one of the files that caches keep beside them."""
    return path.suffix == ".lock" or path.name in BESIDE_CACHES


def left_by(folder: Path) -> list[Item]:
    """Return what the training process and its children left in the launch with these notes,
    parents first. Changes by the rest of the command stay.

    Raises:
        Refused: something cannot be set aside, or its earlier state is lost.
    """
    if not folder.exists():
        return []  # this is the first launch
    of_all = read_notes(folder)
    root = int((folder / TRAINING).read_text(encoding="utf-8"))
    notes = [note for note in of_all if note.root == root]
    free = free_of(str(folder))
    wandb_runs = wandb_folders(of_all)
    warm = caches(of_all, free) | wandb_runs
    listed = listings(notes)
    first = {
        path: note
        for path, note in first_notes(notes).items()
        if path not in warm and not is_below(path, warm) and not is_free(str(path), free)
    }
    for path, note in first.items():
        if note.kind != OUTPUT and not is_sound(path):
            raise Refused(f"a folder above {path} is now a symlink")
    made = {path for path, note in first.items() if note.kind in MADE_HERE}
    items = {
        path: item
        for path, note in first.items()
        if not is_below(path, made) and (item := _item(note, folder)) is not None
    }
    known = first_notes(of_all)
    inodes = _inodes([*folder.glob("*"), *known])
    at_exit = [note.path for note in notes if note.kind == UNNOTICED]
    for path in (*_unnoticed(listed, *_while_it_ran(folder, root)), *_candidates(at_exit)):
        if (
            path not in known
            and not _inodes([path]) & inodes
            and path not in warm
            and not is_below(path, made | warm)
            and not is_free(str(path), free)
        ):
            raise Refused(f"{path} changed during the training, and the canary did not see why")
    whole = {path for path, item in items.items() if item.moved and is_folder(path)}
    by_command = {path for path, note in known.items() if note.kind in (*MADE_HERE, OUTPUT)}
    _require_made(whole, by_command, wandb_runs, free)
    found = [items[path] for path in sorted(items) if not is_below(path, whole)]
    _require_rights(found)
    _require_room(found)
    taken = (set(first), set(listed), Path(started_in(str(folder))))
    return [replace(item, beside=_beside(item, folder, *taken)) for item in found]


def _while_it_ran(folder: Path, root: int) -> tuple[os.stat_result, float]:
    """Return the state of the file made when a process began, and when it ended in seconds since
    the epoch: infinity if it was killed."""
    began, ended = (folder / f"{name}{root}" for name in (BEGAN_AT, ENDED_AT))
    return began.stat(), ended.stat().st_ctime if ended.exists() else math.inf


def _beside(
    item: Item, folder: Path, noted: set[Path], listed: set[Path], cwd: Path
) -> Path | None:
    """Return the topmost writable folder on the item's disk that the command does not touch; None
    if the run's folder is on the same disk."""
    if not item.moved:
        return None
    disk = item.path.parent.stat().st_dev
    if disk == folder.stat().st_dev:
        return None
    for parent in reversed(item.path.parents):
        taken = parent in noted | listed or is_below(parent, noted) or parent.is_relative_to(cwd)
        if parent.stat().st_dev == disk and not taken and os.access(parent, os.W_OK | os.X_OK):
            return parent
    raise Refused(f"{item.path} is on another disk, where no other folder is writable")


def _item(note: Note, folder: Path) -> Item | None:
    path, kind = note.path, note.kind
    if kind == UNKEPT:
        raise Refused(f"the command changes {path}, which {note.more}")
    there = _can_be_moved(path)
    if kind in (NEW, MADE_IN):
        return Item(path, True) if there else None
    if kind in (TEMPORARY, OUTPUT) or (kind == FOLDER and is_folder(path)):
        return None
    if kind != KEPT:
        return Item(path, there, kind, note.more)
    name, _, moment = note.more.rpartition("/")
    kept = folder / name
    if not kept.exists() or kept.stat().st_mtime_ns != int(moment):
        raise Refused(f"the earlier state of {path} is lost")
    return Item(path, there, KEPT, str(kept))


def _unnoticed(listed: dict[Path, set[str]], began: os.stat_result, ended: float) -> Iterator[Path]:
    """Return what native code or another program made or changed meanwhile in these folders."""
    for folder, names in listed.items():
        for path in _candidates([*folder.iterdir()] if is_folder(folder) else []):
            if not _can_be_moved(path):
                continue
            state = path.lstat()
            if is_older(state, began) or state.st_ctime > ended:
                continue
            if path.name not in names or not is_folder(path):
                yield path


def _candidates(paths: list[Path]) -> Iterator[Path]:
    """Leave out paths that other programs may change: hidden, in use, or in a temporary folder."""
    used = _in_use() if paths else ()
    for path in paths:
        shared = (Path(tempfile.gettempdir()).resolve(), Path("/var/tmp"), Path("/"))
        if not path.name.startswith(".") and path not in used and path.parent not in shared:
            yield path


def _require_made(whole: set[Path], made: set[Path], runs: set[Path], free: Free) -> None:
    """Raise Refused unless the command made everything in the folders that are moved whole."""
    looked = 0
    for folder in sorted(path for path in whole if not is_below(path, whole)):
        for root, folders, files in os.walk(folder):
            looked += len(folders) + len(files)
            if looked > LOOKED_AT:
                raise Refused(f"{folder} holds more than {LOOKED_AT:,} files")
            for path in (Path(root) / name for name in (*folders, *files)):
                if is_within(str(path), free):
                    raise Refused(f"{path} is a cache in a folder that the command made")
                known = path in made or is_below(path, runs)
                if not known and not is_free(str(path), free):
                    raise Refused(f"the canary did not see what wrote {path}")


def _inodes(paths: list[Path]) -> set[tuple[int, int]]:
    """Return device and inode of files: one that only lost another name looks changed."""
    found = set()
    for path in paths:
        with contextlib.suppress(OSError):
            one = path.lstat()
            found.add((one.st_dev, one.st_ino))
        if path.name.startswith((COPIED, LINKED)):
            with contextlib.suppress(ValueError):
                device, number = path.name.split(".")[-2:]
                found.add((int(device), int(number)))
    return found


def _in_use() -> set[Path]:
    """Return files that any process has open, and all folders above them."""
    found = set()
    for process in Path("/proc").iterdir() if Path("/proc").is_dir() else ():
        if process.name.isdigit():
            with contextlib.suppress(OSError):  # it ended meanwhile
                found.add((process / "cwd").readlink())
                for link in (process / "fd").iterdir():
                    with contextlib.suppress(OSError):
                        found.add(link.readlink())
    return found | {parent for path in found for parent in path.parents}


def _can_be_moved(path: Path) -> bool:
    """Whether a file, folder or symlink is there; other nodes belong to a running program."""
    try:
        mode = path.lstat().st_mode
    except OSError:
        return False
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)


def _require_rights(items: list[Item]) -> None:
    made = {item.path for item in items if item.before == FOLDER}
    for item in items:
        parent = item.path.parent
        if parent not in made and not os.access(parent, os.W_OK | os.X_OK):
            raise Refused(f"{item.path} cannot be moved: {os.strerror(errno.EACCES)}")


def _require_room(items: list[Item]) -> None:
    """Raise Refused unless the copies fit on the disk, and are small enough to be fast."""
    total = 0
    for item in items:
        if item.before != KEPT:
            continue
        kept = Path(item.more).stat()
        if is_moved(kept):
            continue
        size = kept.st_size
        total += size
        existing = next(parent for parent in item.path.parents if parent.is_dir())
        if total > COPIED_BYTES or total > shutil.disk_usage(existing).free:
            raise Refused(f"{item.path} is too large to copy ({size:,} bytes)")
