"""Sets aside what earlier launches left, waits for one launch, and puts everything back.

A separate process, so that the user's files come back even if the canary is killed: it puts them
back when its standard input ends. A journal lists every move before it is made.

    python -m canary.runner.exec.set_aside FOLDER    puts files back after the machine stopped
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shlex
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any

from canary.runner.exec.file_notes import FOLDER, KEPT, LINK, MARKS, copy_file
from canary.runner.exec.inotify import FileWrites
from canary.runner.exec.left_files import Item, Refused, is_moved, left_by
from canary.runner.exec.put_back import BESIDE, Journal, look, put_back

END_S = 10.0
"""Seconds to end the rest of a launch's processes."""
LINGERS_S = 2.0
"""Seconds that processes of the first launch may run on after it."""
README = """These files are not lost: `canary exec` moved them out of the way of its second launch.

It moves them back when that launch ends, even if the canary is killed. If the machine stopped
before that, this command moves them back:

    {python} -m canary.runner.exec.set_aside {folder}
"""


def main() -> None:
    """Run for the canary, or by hand with only the folder."""
    root = Path(sys.argv[1])
    if len(sys.argv) == 2:
        for text in put_back(root, by_hand=True):
            print(text)
        return
    number, marks = int(sys.argv[2]), sys.argv[3]
    parent = os.getppid()
    try:
        items = left_by(root / "launch0")
        set_aside(root, number, items)
    except (Refused, OSError) as error:
        put_back(root)
        _send({"refused": _words(error)})
        return
    watched = FileWrites({item.path.parent for item in items if item.path.parent.is_dir()})
    _send({"ready": True})
    sys.stdin.buffer.read()
    end_processes(marks)
    notes = put_back(root, written=watched.end())
    if os.getppid() != parent and not notes:
        shutil.rmtree(root, ignore_errors=True)
    _send({"notes": notes})


def _words(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"{error.filename} cannot be moved: {error.strerror}"
    return str(error)


def _send(message: dict[str, Any]) -> None:
    """Write to the canary, if it still runs."""
    with contextlib.suppress(OSError):
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()


def set_aside(root: Path, launch: int, items: list[Item]) -> None:
    """Move the items away, and restore their state before the first launch.

    Raises:
        OSError: something cannot be moved or copied; `put_back` undoes the rest.
    """
    journal = Journal(root / "journal")
    journal.write({"launch": launch})
    words = README.format(python=shlex.quote(sys.executable), folder=shlex.quote(str(root)))
    for parent in {item.path.parent for item in items}:
        with contextlib.suppress(OSError):
            found = parent.stat()
            journal.write({"times": str(parent), "ns": (found.st_atime_ns, found.st_mtime_ns)})
    (root / "README.txt").write_text(words, encoding="utf-8")
    for number, item in enumerate(items):
        if item.moved:
            _moved(item, number, root, journal, words)
        if item.before is not None:
            entry = {"path": str(item.path), "placed": True}
            journal.write(entry | {"is": None})
            _place(item)
            journal.write(entry | {"is": look(item.path)})


def _moved(item: Item, number: int, root: Path, journal: Journal, words: str) -> None:
    """Move an item into the run's folder, or into `item.beside` if that is on another disk."""
    folder = root / "aside"
    if item.beside is not None:
        name = hashlib.sha256(os.fsencode(root)).hexdigest()[:8]
        folder = item.beside / f"{BESIDE}{root.parent.name}-{name}"
    at = folder / str(number) / item.path.name
    at.parent.mkdir(parents=True)
    if item.beside is not None:
        (folder / "README.txt").write_text(words, encoding="utf-8")
    journal.write({"path": str(item.path), "at": str(at)})
    item.path.rename(at)


def _place(item: Item) -> None:
    if item.before == LINK:
        item.path.symlink_to(item.more)
    elif item.before == FOLDER:
        item.path.mkdir(int(item.more, 8))
    elif item.before == KEPT:
        kept = Path(item.more)
        if is_moved(kept.stat()):
            with contextlib.suppress(OSError):
                kept.rename(item.path)
                return
        copy_file(item.more, str(item.path))


def require_ended(marks: str) -> None:
    """Wait up to `LINGERS_S` seconds for the rest of a launch's processes to end.

    Raises:
        Refused: one still runs, and may write at any time.
    """
    end = time.monotonic() + LINGERS_S
    while living := _living(marks):
        if time.monotonic() > end:
            try:
                name = Path(f"/proc/{living[0]}/comm").read_text(encoding="utf-8").strip()
            except OSError:
                continue
            raise Refused(f"{name}, started by the command, still runs")
        time.sleep(0.05)


def _living(marks: str) -> list[int]:
    wanted = os.fsencode(f"{MARKS}={marks}") + b"\0"
    return [pid for pid in _processes() if wanted in _environment(pid) + b"\0"]


def end_processes(marks: str) -> None:
    """End every process that has the launch's mark in its environment."""
    end = time.monotonic() + END_S
    while time.monotonic() < end:
        living = _living(marks)
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


if __name__ == "__main__":
    main()
