"""Reads from git what changed between the commits of two records."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from canary.baseline.commits import diff_between
from canary.compare.diagnosis.source_changes import SourceChanges, parse_diff
from canary.machine.checkout import Unread, read_git
from canary.record.types import RunRecord

CLOCK_S = 1.0
"""A run's timestamp is in whole seconds."""


def source_between(folder: Path, baseline: RunRecord, current: RunRecord) -> SourceChanges:
    """What the repository around `folder` knows of both commits; nothing where it knows neither, or
    where the baseline had changes that are in no commit."""
    base, head = (record.git.get("sha") for record in (baseline, current))
    if baseline.git.get("dirty"):
        return SourceChanges()
    dirty = bool(current.git.get("dirty"))
    found = parse_diff(diff_between(folder, base, head, dirty))
    return _as_old_as(folder, current, found) if dirty else found


def _as_old_as(folder: Path, run: RunRecord, found: SourceChanges) -> SourceChanges:
    """The files that have not changed since the run began: what it trained with."""
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
