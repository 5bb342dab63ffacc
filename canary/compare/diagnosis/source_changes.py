"""The changed lines of a commit, read from git or given by the caller."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from canary.baseline.ancestry import diff_between
from canary.machine.git import Unread, read_git
from canary.record.types import RunRecord

MOST_LINES = 20_000
"""Hunks of a file, and added or removed lines of a hunk, that are kept: a data file may have
millions."""
BINARY = "Binary files "
HUNK = re.compile(r"@@ -(?P<was>\d+)(?:,(?P<old>\d+))? \+(?P<start>\d+)(?:,(?P<new>\d+))?")


@dataclass(frozen=True)
class Hunk:
    """Neighbouring changed lines of one file."""

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


@dataclass(frozen=True)
class SourceChanges:
    """The files of a change; empty if unknown."""

    files: tuple[FileChange, ...] = ()

    def line_naming(self, name: str) -> tuple[str, int, str] | None:
        """Return (path, number, text) of the first changed line with the word; configs first."""
        word = re.compile(rf"(?<![\w.-]){re.escape(name)}(?![\w-])")
        configs = sorted(self.files, key=lambda file: not file.path.endswith((".yaml", ".yml")))
        for file in configs:
            for hunk in file.hunks:
                for number, text in enumerate(hunk.added, start=hunk.line):
                    if word.search(text):
                        return file.path, number, text.strip()
        return None


def parse_diff(text: str) -> SourceChanges:
    """Parse the output of `git diff`, or a patch of that form."""
    files: list[FileChange] = []
    path = old_path = ""
    hunks: list[Hunk] = []

    def end_file() -> None:
        if path:
            files.append(FileChange(path, tuple(hunks[:MOST_LINES]), old_path or path))

    lines = iter(text.split("\n"))
    for line in lines:
        if line.startswith("--- "):
            end_file()
            path, old_path, hunks = "", _name(line, "a/"), []
        elif line.startswith("+++ "):
            if path:  # A patch may name the new file only.
                end_file()
                old_path, hunks = "", []
            new_path = _name(line, "b/")
            path = old_path if new_path == "/dev/null" else new_path
        elif line.startswith(BINARY):
            files += _of_bits(line)
        elif header := HUNK.match(line):
            hunks += _changed_lines(header, lines)
    end_file()
    return SourceChanges(tuple(files))


def _changed_lines(header: re.Match[str], lines: Iterator[str]) -> Iterator[Hunk]:
    """Yield the neighbouring changed lines of one hunk of a diff, from its lines on. They are
    counted, because an added line can look like a header."""
    old, new = (int(header[group] or 1) for group in ("old", "new"))
    # Without lines on a side, the header names the line before.
    old_line, line = int(header["was"]) + (old == 0), int(header["start"]) + (new == 0)
    start = line, old_line
    removed: list[str] = []
    added: list[str] = []

    def ended() -> Iterator[Hunk]:
        if removed or added:
            yield Hunk(*start, tuple(removed), tuple(added))
            removed.clear()
            added.clear()

    while old > 0 or new > 0:
        text = next(lines, None)
        if text is None:
            break
        sign = text[:1]
        if sign not in ("+", "-", "\\") or (sign == "-" and added):
            yield from ended()
        if sign in ("+", "-"):
            start = start if removed or added else (line, old_line)
            side = added if sign == "+" else removed
            side += [text[1:]] * (len(side) < MOST_LINES)
        old, old_line = old - (sign in ("-", " ")), old_line + (sign in ("-", " "))
        new, line = new - (sign in ("+", " ")), line + (sign in ("+", " "))
    yield from ended()


def _of_bits(line: str) -> Iterator[FileChange]:
    """Yield the file of a line such as `Binary files a/x.npy and b/x.npy differ`."""
    was, _, now = line.removeprefix(BINARY).removesuffix(" differ").partition(" and ")
    names = [one for one in (now, was) if one and one != "/dev/null"]
    if names:
        path = _name(f"+++ {names[0]}", "b/").removeprefix("a/")
        yield FileChange(path, (), path)


def _name(header: str, prefix: str) -> str:
    """Return the file of a line such as `+++ b/train.py`. Git ends a name with spaces by a tab, and
    quotes other names like strings of C."""
    name = header[4:].removesuffix("\t")
    if name.startswith('"') and name.endswith('"'):
        escaped = name[1:-1].encode("utf-8", "replace").decode("unicode_escape", "replace")
        name = escaped.encode("latin-1", "replace").decode("utf-8", "replace")
    return name.removeprefix(prefix)


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

    def is_older(path: Path) -> bool:
        try:
            return path.lstat().st_mtime <= began + CLOCK_S
        except OSError:
            return False

    return SourceChanges(tuple(file for file in found.files if is_older(root / file.path)))
