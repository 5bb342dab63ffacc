"""Sets aside what earlier launches left, waits for one more launch, and puts everything back.

A process of its own, so that the user's files come back whatever becomes of the canary: it puts
them back when its standard input ends. What it moves is written to a journal before it is moved.

    python -m canary.runner.aside FOLDER    puts back what a killed machine left set aside
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import signal
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from canary.runner.left import (
    AFTER,
    Item,
    Note,
    Refused,
    caches,
    firsts,
    is_below,
    is_folder,
    is_moved,
    left_by,
    listings,
    read_notes,
)
from canary.runner.noting import COPIED, FOLDER, KEPT, LINK, MARKS, NEW, TEMPORARY, copy_file

END_S = 10.0
"""How long processes of a launch that is over are looked for."""
README = """These files are not lost: `canary exec` moved them out of the way of its second launch.

It moves them back when that launch is over, also when the canary itself is killed. Where the whole
machine was stopped meanwhile, this command moves them back:

    {python} -m canary.runner.aside {folder}
"""


def main() -> None:
    """Runs as the canary's helper, or by hand with the folder alone."""
    root = Path(sys.argv[1])
    if len(sys.argv) == 2:
        for text in put_back(root):
            print(text)
        return
    number, began, marks = int(sys.argv[2]), float(sys.argv[3]), sys.argv[4]
    parent = os.getppid()
    try:
        set_aside(root, number, left_by(root / "launch0", began))
    except (Refused, OSError) as error:
        put_back(root)
        _tell({"refused": _words(error)})
        return
    _tell({"ready": True})
    sys.stdin.buffer.read()
    end_processes(marks)
    told = put_back(root)
    if os.getppid() != parent and not told:
        shutil.rmtree(root, ignore_errors=True)
    _tell({"told": told})


def _words(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"{error.filename} cannot be moved: {error.strerror}"
    return str(error)


def _tell(message: dict[str, Any]) -> None:
    """To the canary, where it is still there."""
    with contextlib.suppress(OSError):
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()


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


def set_aside(root: Path, launch: int, items: list[Item]) -> None:
    """Moves what is there, and puts the state from before in its place.

    Raises:
        OSError: something cannot be moved or copied; `put_back` undoes the rest.
        Refused: the same, in words.
    """
    journal = Journal(root / "journal")
    journal.write({"launch": launch})
    words = README.format(python=sys.executable, folder=root)
    for parent in {item.path.parent for item in items}:
        with contextlib.suppress(OSError):
            found = parent.stat()
            journal.write({"times": str(parent), "ns": (found.st_atime_ns, found.st_mtime_ns)})
    (root / "README.txt").write_text(words, encoding="utf-8")
    for number, item in enumerate(items):
        at = None
        if item.moved:
            at = _moved(item, number, root, journal, words)
        if item.before is not None:
            journal.write({"path": str(item.path), "placed": True, "is": None})
            _place(item, at)
            journal.write({"path": str(item.path), "is": _look(item.path)})


def _moved(item: Item, number: int, root: Path, journal: Journal, words: str) -> Path:
    """Into the run's own folder, or, where that is on another disk, into one beside it."""
    beside = item.beside / f"canary-set-aside-{root.parent.name}"
    for place in (root / "aside", beside):
        at = place / str(number) / item.path.name
        at.parent.mkdir(parents=True, exist_ok=True)
        if place == beside:
            (beside / "README.txt").write_text(words, encoding="utf-8")
        journal.write({"path": str(item.path), "at": str(at)})
        try:
            item.path.rename(at)
        except OSError as error:
            if error.errno == errno.EXDEV and place != beside:
                at.parent.rmdir()
                continue
            raise
        return at
    raise AssertionError("unreachable: a rename within one folder is on one disk")


def _place(item: Item, at: Path | None) -> None:
    if item.before == LINK:
        item.path.symlink_to(item.more)
    elif item.before == FOLDER:
        item.path.mkdir(int(item.more, 8))
    elif item.before == AFTER:
        assert at is not None
        copy_file(str(at), str(item.path))
    elif item.before == KEPT:
        kept = Path(item.more)
        if is_moved(kept.stat()):
            with contextlib.suppress(OSError):
                kept.rename(item.path)
                return
        copy_file(item.more, str(item.path))


def _look(path: Path) -> list[int] | None:
    """What tells one state of a file from another."""
    try:
        found = path.lstat()
    except OSError:
        return None
    return [found.st_ino, found.st_size, found.st_mtime_ns]


def end_processes(marks: str) -> None:
    """Ends what is left of a launch: every process that has its mark in the environment."""
    wanted = os.fsencode(f"{MARKS}={marks}") + b"\0"
    end = time.monotonic() + END_S
    while time.monotonic() < end:
        living = [pid for pid in _processes() if wanted in _environment(pid) + b"\0"]
        if not living:
            return
        for pid in living:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


def _processes() -> list[int]:
    proc = Path("/proc")
    return [int(e.name) for e in proc.iterdir() if e.name.isdigit()] if proc.exists() else []


def _environment(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


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
            told.append(f"{path} cannot be moved back, it is {item.get('at')}: {error.strerror}")
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
            f"a shell or another program wrote {path} during the second launch; the file of the "
            f"first one is back, the newer one is {kept}"
        )
    else:
        _remove(path)
    if item.get("at") is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        Path(item["at"]).rename(path)
    return told


def _in_the_way(path: Path, item: dict[str, Any], known: bool) -> bool:
    """Whether something is there that is neither ours nor the launch's."""
    found = _look(path)
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


if __name__ == "__main__":
    main()
