"""What ran of one file: the phase and the function of each line; and changed code that did not run
in the look: no signal can show what it does. Pure.

A stranger may have written the record, so lines are runs that are merged and searched, not counted.
"""

from __future__ import annotations

import ast
import heapq
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

from canary.compare.diagnosis.source_changes import FileChange, Hunk
from canary.compare.exact.learning_stages import length_of
from canary.compare.report import Place
from canary.record.exact import FileCode
from canary.record.line_ranges import runs_of
from canary.record.types import RunRecord

MODULE = "<module>"


class RanLines:
    """The lines of a file that ran in a run; none if the run did not load the file."""

    def __init__(self, file: FileCode, *, idle: bool = False) -> None:
        """`idle`: owners are also functions that did not run."""
        self._functions = file.get("functions", {}) | (file.get("idle", {}) if idle else {})
        self._ran = {phase: _merged(text) for phase, text in file.get("ran", {}).items()}
        self._starts, self._owners = _innermost(
            [(first, last, name) for name, (first, last, _) in self._functions.items()]
        )

    def lines(self, first: int, count: int) -> Iterator[tuple[int, str]]:
        """Yield those of `count` lines from `first` on that ran, with each phase in which they
        did."""
        for phase, runs in self._ran.items():
            for start, end in runs[bisect_left(runs, first, key=lambda run: run[1]) :]:
                if start >= first + count:
                    break
                for line in range(max(start, first), min(end + 1, first + count)):
                    yield line, phase

    def phases(self, first: int, last: int) -> list[str]:
        """Return the phases in which one of these lines ran."""
        return [
            phase
            for phase, runs in self._ran.items()
            if any(start <= last and end >= first for start, end in runs)
        ]

    def owner(self, line: int) -> str:
        """Return the innermost function or class with the line."""
        place = bisect_right(self._starts, line) - 1
        return self._owners[place] if place >= 0 else MODULE

    def digest(self, name: str) -> str | None:
        """Return the hash of a function's code; None if it is not known."""
        function = self._functions.get(name)
        return function[2] if function else None


def _merged(text: str) -> list[tuple[int, int]]:
    """Return the runs of such a text in order, none of which touches another."""
    merged: list[tuple[int, int]] = []
    for first, last in sorted(runs_of(text)):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return merged


def _innermost(spans: list[tuple[int, int, str]]) -> tuple[list[int], list[str]]:
    """Return the lines at which the innermost span changes, and its name from there on."""
    spans = sorted(span for span in spans if span[2] != MODULE)
    starts = sorted({line for first, last, _ in spans for line in (first, last + 1)})
    owners: list[str] = []
    inside: list[tuple[int, int, str]] = []
    entered = 0
    for line in starts:
        while entered < len(spans) and spans[entered][0] <= line:
            first, last, name = spans[entered]
            heapq.heappush(inside, (-first, last, name))
            entered += 1
        while inside and inside[0][1] < line:
            heapq.heappop(inside)
        owners.append(inside[0][2] if inside else MODULE)
    return starts, owners


def not_run(before: RunRecord, now: RunRecord, files: Sequence[FileChange]) -> Iterator[Place]:
    """Yield a place for each function whose changed lines did not run, of files that both trainings
    loaded. None if the look was the whole training: then there was nothing else to run."""
    if is_whole(now):
        return
    was, new = (side.exact.get("code", {}).get("files", {}) for side in (before, now))
    for file in files:
        if file.path in new and file.old_path in was:
            yield from _of_file(file, was[file.old_path], new[file.path])


def is_whole(record: RunRecord) -> bool:
    """Whether the training ended by itself within the look."""
    end = length_of(record)
    return end.known and end.steps <= record.exact.get("steps", 0)


def _of_file(file: FileChange, before: FileCode, after: FileCode) -> Iterator[Place]:
    was, now = RanLines(before, idle=True), RanLines(after, idle=True)
    entered = {*before.get("functions", {}), *after.get("functions", {})}
    seen: set[str] = set()
    for hunk in file.hunks:
        if any(was.lines(hunk.old_line, len(hunk.removed))):
            continue
        if any(now.lines(hunk.line, len(hunk.added))):
            continue
        for line, owner in _changed(hunk, was, now, entered):
            if owner not in seen:
                seen.add(owner)
                yield Place("code", file.path, line, owner)
            break


def _changed(
    hunk: Hunk, was: RanLines, now: RanLines, entered: set[str]
) -> Iterator[tuple[int, str]]:
    """Yield (line, function) of lines in a function whose code differs. The hash of a function
    leaves comments and docstrings out; in one that ran in part, each line must also be code."""
    for side, first, texts in ((now, hunk.line, hunk.added), (was, hunk.old_line, hunk.removed)):
        for line, text in enumerate(texts, start=first):
            owner = side.owner(line)
            differs = was.digest(owner) != now.digest(owner) and text.strip()[:1] not in ("", "#")
            if differs and (owner not in entered or _is_code(text)):
                yield (line if side is now else hunk.line), owner


def _is_code(text: str) -> bool:
    """Whether one line reads as code: words of a docstring do not parse, or are only names."""
    line = text.strip()
    try:
        (found,) = ast.parse(f"{line} pass" if line.endswith(":") else line).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return not (isinstance(found, ast.Expr) and isinstance(found.value, ast.Constant | ast.Name))
