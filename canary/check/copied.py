"""A copy of the working folder, for further launches of a user's command."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from canary.record import jsonio

MOST_FILES, MOST_BYTES = 5_000, 200 << 20
MOST_FOLDERS = 5_000
CHUNK = 1 << 20
LEFT_OUT = frozenset((".git", ".hg", ".svn", "node_modules", "__pycache__"))
ENVIRONMENT = "pyvenv.cfg"
"""The file of a virtual environment."""


class TooLarge(Exception):
    """The folder is not copied; the text says why."""


def copy_of(folder: Path, to: Path, leave_out: Iterable[Path]) -> None:
    """Copy a working folder into an empty one, without repositories, environments, caches and
    `leave_out`.

    Links to what is copied lead to the copy of it, all others where they led before. Pipes, sockets
    and devices are left out, and so is a file that vanishes meanwhile.

    Raises:
        TooLarge: it holds too many files or bytes.
        OSError: something cannot be read or written.
    """
    folder = folder.resolve()
    plan = _planned(folder, {to.resolve(), *(one.resolve() for one in leave_out)})
    to.mkdir(parents=True, exist_ok=True)
    for source, size in plan.found.items():
        target = to / source.relative_to(folder)
        if size is None:
            target.mkdir(exist_ok=True)
            continue
        with contextlib.suppress(FileNotFoundError):
            if source.is_symlink():
                target.symlink_to(_target(source, folder, plan.left_out))
            else:
                _copy_file(source, target, size)


COPY = "working-folder"
"""The name of a copy, in the folder of the check."""


def new_folder(parent: Path) -> Path:
    """Make a folder for a copy, for this user alone. The user may have one of its name."""
    try:
        (parent / COPY).mkdir(0o700, parents=True)
    except FileExistsError:
        return Path(tempfile.mkdtemp(prefix=f"{COPY}-", dir=parent))
    return parent / COPY


def remove_copy(copied: Path) -> None:
    """Remove a copy, whatever a training did with the permissions of its folders."""
    waiting = [copied]
    while waiting:
        here = waiting.pop()
        with contextlib.suppress(OSError):
            if not os.access(here, os.R_OK | os.W_OK | os.X_OK):
                here.chmod(stat.S_IRWXU)
            with os.scandir(here) as entries:
                waiting += [Path(one.path) for one in entries if one.is_dir(follow_symlinks=False)]
    shutil.rmtree(copied, ignore_errors=True)


@dataclass
class _Plan:
    """What to copy."""

    found: dict[Path, int | None] = field(default_factory=dict)
    """Files and links with their sizes; a folder, before its content, has None."""
    left_out: set[Path] = field(default_factory=set)


def _planned(folder: Path, leave_out: set[Path]) -> _Plan:
    plan = _Plan()
    files = folders = size = 0
    waiting = [folder]
    while waiting:
        here = waiting.pop()
        folders += 1
        with os.scandir(here) as entries:
            for entry in entries:
                path = Path(entry.path)
                if entry.is_dir(follow_symlinks=False):
                    if _is_left_out(path, leave_out):
                        plan.left_out.add(path)
                    else:
                        plan.found[path] = None
                        waiting.append(path)
                    continue
                state = entry.stat(follow_symlinks=False)
                if not (stat.S_ISREG(state.st_mode) or stat.S_ISLNK(state.st_mode)):
                    continue
                plan.found[path] = state.st_size
                files += 1
                size += state.st_size
                if files > MOST_FILES or size > MOST_BYTES:
                    break
        if files > MOST_FILES or folders > MOST_FOLDERS:
            are_files = files > MOST_FILES
            most = f"{MOST_FILES:,} files" if are_files else f"{MOST_FOLDERS:,} folders"
            raise TooLarge(f"the working folder has more than {most} to copy")
        if size > MOST_BYTES:
            raise TooLarge(f"the working folder has more than {MOST_BYTES >> 20} MiB to copy")
    return plan


def _copy_file(source: Path, target: Path, size: int) -> None:
    """Copy `size` bytes: a file may grow, or become a pipe, while the folder is copied."""
    with jsonio.open_regular(source, sys.maxsize) as read, target.open("wb") as write:
        while size > 0 and (chunk := read.read(min(size, CHUNK))):
            write.write(chunk)
            size -= len(chunk)
    shutil.copystat(source, target)


def _is_left_out(path: Path, leave_out: set[Path]) -> bool:
    return path.name in LEFT_OUT or path in leave_out or (path / ENVIRONMENT).exists()


def _target(link: Path, folder: Path, left_out: set[Path]) -> str:
    """Return where a copied link leads."""
    target = link.readlink()
    # Not by resolve(), which refuses links in a circle.
    real = Path(os.path.realpath(link.parent / target))
    if not real.is_relative_to(folder) or any(real.is_relative_to(one) for one in left_out):
        return str(target if target.is_absolute() else real)
    named = Path(os.path.normpath(link.parent / target))
    return os.path.relpath(named if named.is_relative_to(folder) else real, link.parent)
