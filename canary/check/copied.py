"""A copy of the working folder, for launches that leave files on purpose."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterable
from pathlib import Path

MOST_FILES, MOST_BYTES = 5_000, 200 << 20
MOST_FOLDERS = 5_000
LEFT_OUT = frozenset((".git", ".hg", ".svn", "node_modules", "__pycache__"))
ENVIRONMENT = "pyvenv.cfg"
"""The file of a virtual environment."""


class TooLarge(Exception):
    """The folder is not copied; the text says why."""


def copy_of(folder: Path, to: Path, leave_out: Iterable[Path]) -> None:
    """Copy a working folder, without repositories, environments, caches and `leave_out`.

    Links are kept. Those that lead out of the folder lead to the same files as before. Pipes,
    sockets and devices are left out.

    Raises:
        TooLarge: it holds too many files or bytes.
        OSError: something cannot be read or written.
    """
    folder = folder.resolve()
    plan = _planned(folder, {to.resolve(), *(one.resolve() for one in leave_out)})
    to.mkdir(parents=True)
    for source in plan:
        target = to / source.relative_to(folder)
        if source.is_symlink():
            target.symlink_to(_target(source, folder))
        elif source.is_dir():
            target.mkdir(exist_ok=True)
        else:
            shutil.copy2(source, target)


def _planned(folder: Path, leave_out: set[Path]) -> list[Path]:
    """Return what to copy, each folder before its content."""
    found: list[Path] = []
    files = folders = size = 0
    waiting = [folder]
    while waiting:
        here = waiting.pop()
        folders += 1
        with os.scandir(here) as entries:
            for entry in entries:
                path = Path(entry.path)
                is_folder = entry.is_dir(follow_symlinks=False)
                if is_folder and not _is_left_out(path, leave_out):
                    found.append(path)
                    waiting.append(path)
                if is_folder:
                    continue
                state = entry.stat(follow_symlinks=False)
                if not (stat.S_ISREG(state.st_mode) or stat.S_ISLNK(state.st_mode)):
                    continue
                found.append(path)
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
    return found


def _is_left_out(path: Path, leave_out: set[Path]) -> bool:
    return path.name in LEFT_OUT or path in leave_out or (path / ENVIRONMENT).exists()


def _target(link: Path, folder: Path) -> str:
    """Return where a copied link leads: within the copy if it led into `folder` by a relative
    path."""
    target = link.readlink()
    if target.is_absolute():
        return str(target)
    real = (link.parent / target).resolve()
    return str(target) if real.is_relative_to(folder) else str(real)
