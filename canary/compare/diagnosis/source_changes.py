"""The changed lines of a commit, read from git or given by the caller."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from canary.baseline.commits import diff_between
from canary.machine.git import Unread, read_git
from canary.record.types import RunRecord

MOST_LINES = 20_000
"""Added, and removed, lines of one file that are kept."""
HUNK = re.compile(r"@@ -(?P<was>\d+)(?:,(?P<old>\d+))? \+(?P<start>\d+)(?:,(?P<new>\d+))?")

ESCAPED = re.compile(rb"\\([0-7]{3}|.)", re.DOTALL)
ESCAPES = {
    b"a": b"\a",
    b"b": b"\b",
    b"f": b"\f",
    b"n": b"\n",
    b"r": b"\r",
    b"t": b"\t",
    b"v": b"\v",
}


@dataclass(frozen=True)
class Hunk:
    """Neighbouring changed lines of one file."""

    path: str
    line: int
    """Number of the first new line; of removed lines alone, of the line that follows them."""
    old_line: int
    """Number of the first removed line."""
    removed: tuple[str, ...] = ()
    added: tuple[str, ...] = ()


@dataclass(frozen=True)
class FileChange:
    """One file that differs between the baseline's commit and the current one."""

    path: str
    hunks: tuple[Hunk, ...] = ()
    old_path: str = ""
    """Its path in the baseline's commit."""

    @property
    def lines(self) -> list[tuple[int, str]]:
        """New or changed lines: (number in the new file, text)."""
        return [
            (hunk.line + place, text)
            for hunk in self.hunks
            for place, text in enumerate(hunk.added)
        ]

    @property
    def removed(self) -> list[str]:
        """Lines that are gone."""
        return [text for hunk in self.hunks for text in hunk.removed]


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
    """Parse the output of `git diff`, or a patch of that form."""
    files: list[FileChange] = []
    path = old_path = ""
    hunks: list[Hunk] = []
    old_line = line = old = new = 0
    start = was = 0
    kept = {"+": 0, "-": 0}
    removed: list[str] = []
    added: list[str] = []

    def end_hunk() -> None:
        if removed or added:
            hunks.append(Hunk(path, start, was, tuple(removed), tuple(added)))
            removed.clear()
            added.clear()

    def end_file() -> None:
        end_hunk()
        kept.update({"+": 0, "-": 0})
        if path:
            files.append(FileChange(path, tuple(hunks), old_path or path))

    # The lines of a hunk are counted, because an added line can look like a header.
    for text_line in text.split("\n"):
        if old > 0 or new > 0:
            sign, content = text_line[:1], text_line[1:]
            if sign not in "+-\\" or (sign == "-" and added):
                end_hunk()
            if sign in kept and not (removed or added):
                start, was = line, old_line
            if sign in kept and kept[sign] < MOST_LINES:
                kept[sign] += 1
                (added if sign == "+" else removed).append(content)
            old -= sign in ("-", " ")
            new -= sign in ("+", " ")
            old_line += sign in ("-", " ")
            line += sign in ("+", " ")
        elif text_line.startswith("--- "):
            end_file()
            path, old_path, hunks = "", _name(text_line, "a/"), []
        elif text_line.startswith("+++ "):
            if path:  # A patch may name the new file only.
                end_file()
                old_path, hunks = "", []
            new_path = _name(text_line, "b/")
            path = old_path if new_path == "/dev/null" else new_path
        elif hunk := HUNK.match(text_line):
            end_hunk()
            old, new = (int(hunk[group] or 1) for group in ("old", "new"))
            # Without lines on a side, the header names the line before.
            old_line = int(hunk["was"]) + (old == 0)
            line = int(hunk["start"]) + (new == 0)
    end_file()
    return SourceChanges(tuple(files))


def _name(header: str, prefix: str) -> str:
    """Return the file of a line such as `+++ b/train.py`. Git ends a name with spaces by a tab, and
    quotes other names like strings of C."""
    name = header[4:].removesuffix("\t")
    if name.startswith('"') and name.endswith('"'):
        quoted = name[1:-1].encode("utf-8", "replace")
        name = ESCAPED.sub(_unescaped, quoted).decode("utf-8", "replace")
    return name.removeprefix(prefix)


def _unescaped(escape: re.Match[bytes]) -> bytes:
    text = escape[1]
    return bytes([int(text, 8) & 255]) if len(text) == 3 else ESCAPES.get(text, text)


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
