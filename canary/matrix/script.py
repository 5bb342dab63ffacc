"""A try as a script, `run.sh` in its folder, for machines that only share this folder or get a copy
of it. The script takes the lock of the try, so that two who start it run it once."""

from __future__ import annotations

import os
import shlex
import stat
from pathlib import Path

from canary.errors import MachineError
from canary.matrix.attempt import BEGAN, ENDED, LOCK, Attempt
from canary.record import jsonio

SCRIPT = "run.sh"
HERE = '"$folder"'
LOCKED = f"""#!/bin/sh
# One cell of a canary matrix: starts it, unless it runs or has ended.
folder=$(cd "$(dirname "$0")" && pwd) || exit 71
exec 9>>"$folder/{LOCK}" || exit 71
flock -n 9 || exit 0
[ -e "$folder/{ENDED}" ] && exit 0
"""
"""Exit code 71 is EX_OSERR: the folder cannot be written."""


def write_script(attempt: Attempt, *, copied: bool = False) -> Path:
    """Write the script of a try and return it.

    Args:
        attempt: the try.
        copied: whether it runs on a machine without this one's folders: then it stays in the folder
            that it is started in.

    Raises:
        MachineError: it cannot be written.
    """
    lines = [LOCKED]
    if not copied:
        lines.append(f"cd {shlex.quote(str(attempt.cwd))} || exit 71\n")
    changed = {k: v for k, v in attempt.environment.items() if os.environ.get(k) != v}
    lines += [f"export {name}={shlex.quote(value)}\n" for name, value in changed.items()]
    words = [_quoted(word, attempt.folder) for word in attempt.words([9])]
    lines.append(" ".join(words) + "\n")
    path = attempt.folder / SCRIPT
    try:
        attempt.folder.mkdir(parents=True, exist_ok=True)
        jsonio.replace_file(path, "".join(lines))
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    except OSError as error:
        raise MachineError(f"cannot write {path}: {error.strerror or error}") from error
    return path


def _quoted(word: str, folder: Path) -> str:
    """Quote a word; the folder of the try is the one that the script lies in."""
    before, found, after = word.partition(str(folder))
    if not found or before:
        return shlex.quote(word)
    return f"{HERE}{shlex.quote(after) if after else ''}"


def forget(attempt: Attempt) -> None:
    """Remove what tells that the try was begun: another machine begins it anew."""
    (attempt.folder / BEGAN).unlink(missing_ok=True)
