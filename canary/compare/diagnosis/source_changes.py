"""The changed lines of a commit, read from git or given by the caller."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from canary.baseline.commits import diff_between
from canary.machine.git import Unread, read_git
from canary.record.types import RunRecord

MOST_LINES = 2000


@dataclass(frozen=True)
class FileChange:
    """One file that differs between the baseline's commit and the current one."""

    path: str
    lines: tuple[tuple[int, str], ...] = ()
    """New or changed lines: (number in the new file, text)."""


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


def parse_diff(text: str) -> SourceChanges:
    """Parse the output of `git diff --unified=0`, or a patch of that form."""
    files: list[FileChange] = []
    path, number = "", 0
    lines: list[tuple[int, str]] = []
    for line in text.splitlines():
        if line.startswith("+++ "):
            if path:
                files.append(FileChange(path, tuple(lines)))
            path, lines = line[4:].removeprefix("b/"), []
        elif match := re.match(r"@@ -\S+ \+(\d+)", line):
            number = int(match[1])
        elif line.startswith("+") and path and len(lines) < MOST_LINES:
            lines.append((number, line[1:]))
            number += 1
        elif line.startswith(" "):
            number += 1
    if path:
        files.append(FileChange(path, tuple(lines)))
    return SourceChanges(tuple(file for file in files if file.path != "/dev/null"))


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
