"""Finds changed code that did not run in the look: no signal can show what it does. Pure."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from canary.compare.diagnosis.source_changes import FileChange, Hunk
from canary.compare.exact.length import length_of
from canary.compare.ran_lines import RanLines
from canary.compare.report import Place
from canary.record.exact import FileCode
from canary.record.types import RunRecord


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
