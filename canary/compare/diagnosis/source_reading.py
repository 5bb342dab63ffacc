"""Read from git what changed between the commits of two records."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from canary.baseline.commits import diff_between
from canary.compare.diagnosis.source_changes import SourceChanges, parse_diff
from canary.machine.checkout import Unread, read_git
from canary.record.types import RunRecord

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
