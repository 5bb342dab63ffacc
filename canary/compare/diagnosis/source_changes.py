"""The changed lines of a commit; the caller reads them from git or GitHub. Pure data."""

from __future__ import annotations

import re
from dataclasses import dataclass

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
