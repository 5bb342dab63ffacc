"""The changed lines of a commit, read from git or given by the caller."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from canary.baseline.commits import diff_between
from canary.machine.git import Unread, read_git
from canary.record.types import RunRecord

MOST_SHOWN = 40
"""Lines of a hunk that are shown."""
MOST_LINES = 2000
"""Added, and removed, lines of one file that are kept."""
HUNK = re.compile(r"@@ -\d+(?:,(?P<old>\d+))? \+(?P<start>\d+)(?:,(?P<new>\d+))?")


@dataclass(frozen=True)
class FileChange:
    """One file that differs between the baseline's commit and the current one."""

    path: str
    lines: tuple[tuple[int, str], ...] = ()
    """New or changed lines: (number in the new file, text)."""
    removed: tuple[tuple[int, str], ...] = ()
    """Lines that are gone: (number of the new file's line that they stood before, text)."""


@dataclass(frozen=True)
class Hunk:
    """Neighbouring changed lines of one file."""

    path: str
    line: int
    """Number of the first one in the new file."""
    lines: tuple[tuple[str, str], ...]
    """(`-` or `+`, text)."""


@dataclass(frozen=True)
class SourceChanges:
    """The files of a change; empty if unknown."""

    files: tuple[FileChange, ...] = ()

    def line_naming(self, name: str) -> tuple[str, int, str] | None:
        """Return (path, number, text) of the first changed line with the word; configs first."""
        word = re.compile(rf"(?<![\w.-]){re.escape(name)}(?![\w-])")
        configs = sorted(self.files, key=lambda file: not file.path.endswith((".yaml", ".yml")))
        for file in configs:
            for number, text in file.lines:
                if word.search(text):
                    return file.path, number, text.strip()
        return None

    def hunk(self, path: str, line: int) -> Hunk | None:
        """Return the changed lines of a file at a line, or the next ones; None without any. The
        path may have more or fewer folders in front."""
        file = next((file for file in self.files if _same_file(file.path, path)), None)
        if file is None:
            return None
        changed = sorted({number for number, _ in (*file.removed, *file.lines)})
        start = next((n for n in changed if n >= line), changed[-1] if changed else None)
        if start is None:
            return None
        run = {start}
        while min(run) - 1 in changed:
            run.add(min(run) - 1)
        while max(run) + 1 in changed:
            run.add(max(run) + 1)
        old = [("-", text) for number, text in file.removed if number in run]
        new = [("+", text) for number, text in file.lines if number in run]
        return Hunk(file.path, start, tuple((old + new)[:MOST_SHOWN]))


def _same_file(one: str, other: str) -> bool:
    return one == other or one.endswith(f"/{other}") or other.endswith(f"/{one}")


def parse_diff(text: str) -> SourceChanges:
    """Parse the output of `git diff --unified=0`, or a patch of that form."""
    files: list[FileChange] = []
    path, number, old, new = "", 0, 0, 0
    lines: list[tuple[int, str]] = []
    removed: list[tuple[int, str]] = []

    def end_file() -> None:
        if path and path != "/dev/null":
            files.append(FileChange(path, tuple(lines), tuple(removed)))

    # The lines of a hunk are counted, because an added line can look like a header.
    for line in text.split("\n"):
        if old > 0 or new > 0:
            sign, content = line[:1], line[1:]
            if sign == "-" and len(removed) < MOST_LINES:
                removed.append((number, content))
            elif sign == "+" and len(lines) < MOST_LINES:
                lines.append((number, content))
            old -= sign in ("-", " ")
            new -= sign in ("+", " ")
            number += sign in ("+", " ")
        elif line.startswith("+++ "):
            end_file()
            path, lines, removed = line[4:].removeprefix("b/"), [], []
        elif hunk := HUNK.match(line):
            old, new = (int(hunk[group] or 1) for group in ("old", "new"))
            # Without new lines, the header names the line before.
            number = int(hunk["start"]) + (new == 0)
    end_file()
    return SourceChanges(tuple(files))


CLOCK_S = 1.0
"""Precision of a run's timestamp."""


def source_between(folder: Path, baseline: RunRecord, current: RunRecord) -> SourceChanges:
    """Return what changed between both commits, from the repository around `folder`.

    Empty if it lacks a commit or the baseline had uncommitted changes.
    """
    base, head = (record.git.get("sha") for record in (baseline, current))
    if baseline.git.get("dirty"):
        return SourceChanges()
    dirty = bool(current.git.get("dirty"))
    found = parse_diff(diff_between(folder, base, head, dirty))
    return _unchanged_since(folder, current, found) if dirty else found


def _unchanged_since(folder: Path, run: RunRecord, found: SourceChanges) -> SourceChanges:
    """Return the files that have not changed since the run began: those that it trained with."""
    try:
        root = Path(read_git(folder, "rev-parse", "--show-toplevel").strip())
        began = datetime.fromisoformat(run.timestamp).timestamp()
    except (Unread, ValueError):
        return SourceChanges()
    return SourceChanges(tuple(f for f in found.files if _changed_before(root / f.path, began)))


def _changed_before(path: Path, moment: float) -> bool:
    try:
        return path.lstat().st_mtime <= moment + CLOCK_S
    except OSError:
        return False
