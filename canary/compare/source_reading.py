"""Reads from git what changed between the commits of two records."""

from __future__ import annotations

from pathlib import Path

from canary.baseline.commits import diff_between
from canary.collect.record import RunRecord
from canary.compare.source_changes import SourceChanges, parse_diff


def source_between(folder: Path, baseline: RunRecord, current: RunRecord) -> SourceChanges:
    """What the repository around `folder` knows of both commits; nothing where it knows neither."""
    base, head = (record.git.get("sha") for record in (baseline, current))
    return parse_diff(diff_between(folder, base, head, bool(current.git.get("dirty"))))
