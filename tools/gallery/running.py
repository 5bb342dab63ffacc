"""Run both sides of an incident in alternation, as `canary ab` does, and keep the comparison."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from bench.corpus.row import Row
from canary.campaign.pairs import PairProgress, Plan, Role, run_pairs
from canary.campaign.side import Side
from canary.compare.diagnosis.source_changes import source_between
from canary.compare.paths import Request, thresholds_for
from canary.compare.report import Comparison
from canary.compare.stats import compare_to_baseline
from canary.record.types import RunRecord
from canary.report.document import json_text
from canary.report.pages import COMPARISON
from tools.gallery.project import CONFIG, Project, write_project

DIFF = "change.diff"
RUNS = "runs"


def run_incident(row: Row, title: str, folder: Path, say: Callable[[str], None]) -> None:
    """Run pairs until the answer is clear; leave comparison, diff and runs in an empty folder.

    Raises:
        CanaryError: a side cannot run.
    """
    folder.mkdir(parents=True, exist_ok=True)
    project = write_project(row, title, folder)
    plan = Plan()
    sides = {role: _side(role, project, folder) for role in ("base", "head")}

    def launch(role: Role, *, probe: bool) -> RunRecord:
        return sides[role].run(probe=probe)

    def judge(head: list[RunRecord], base: list[RunRecord], budget: float) -> Comparison:
        thresholds, tier = thresholds_for(Request((), ()), base or head)
        source = source_between(project.head, base[-1], head[-1]) if base and head else None
        paired = len(head) == len(base)
        found = compare_to_baseline(
            head, base, thresholds, paired=paired, budget=budget, source=source
        )
        return replace(found, tier=tier)

    progress = PairProgress(say, plan)
    found, _ = run_pairs(plan, launch, judge, progress, time.monotonic)
    (folder / DIFF).write_text(project.diff, encoding="utf-8")
    (folder / RUNS / COMPARISON).write_text(json_text(found), encoding="utf-8")


def _side(role: Role, project: Project, folder: Path) -> Side:
    checkout = project.base if role == "base" else project.head
    environment = dict(project.environment)
    if "PYTHONPATH" in environment:
        environment["PYTHONPATH"] += f"{os.pathsep}{checkout}"
    config, runs = checkout / CONFIG, folder / RUNS / role
    return Side(role, role, config, checkout, Path(sys.executable), environment, runs)


def is_run(folder: Path) -> bool:
    """Return whether a folder holds an ended incident."""
    return (folder / RUNS / COMPARISON).is_file()
