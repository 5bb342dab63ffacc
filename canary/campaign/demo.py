"""`canary demo`: a harmless pull request passes, and one with a silent fault is caught."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from canary.campaign.demo_repository import BROKEN, HARMLESS, MAIN, branches, own_git
from canary.campaign.pairs import PairProgress, Plan, Role, run_pairs, speed_words
from canary.campaign.side import Side, claimed
from canary.compare.diagnosis.source_changes import source_between
from canary.compare.paths import Request, thresholds_for
from canary.compare.report import Comparison
from canary.compare.stats import compare_to_baseline
from canary.machine.scratch import remove_left_scratches
from canary.record.end_loss import END_LOSS
from canary.record.types import RunRecord
from canary.report.lines import wrapped
from canary.report.numbers import amount
from canary.runner.child_environment import require_training_stack

PAIRS = 3
HEADING_WIDTH = 78
PROJECT = "project"
FAULT = "pad_with_eos"
"""The folder of the broken pull request's run and comparison."""
USUAL_LOSS_GATE = 0.05
"""The smallest rise that a usual gate on the loss stops: 5%."""


@dataclass(frozen=True)
class Demo:
    """Both comparisons, and where their runs are."""

    healthy: Comparison
    faulty: Comparison
    folder: Path
    faulty_run: Path
    """Folder of the broken pull request's run."""

    @property
    def project(self) -> Path:
        """The git repository with both pull requests."""
        return self.folder / PROJECT

    @property
    def as_promised(self) -> bool:
        """Whether the fault was caught and the harmless pull request did not fail."""
        return self.healthy.verdict in ("pass", "inconclusive") and (
            self.faulty.verdict == "regression"
        )


def run_demo(output_dir: Path, say: Callable[[str], None]) -> Demo:
    """Run three pairs of main and a harmless pull request, and one run of a broken one.

    Raises:
        UsageError: the packages for training are missing, or git.
        MachineError: a run left no record.
    """
    require_training_stack()
    remove_left_scratches()
    folder = (output_dir / f"demo-{datetime.now(UTC):%Y%m%d-%H%M%S}").absolute()
    claimed(folder)
    project = folder / PROJECT
    with own_git(), branches(project) as trees:
        return _compared(trees, project, folder, say)


def _compared(
    trees: Mapping[str, Path], project: Path, folder: Path, say: Callable[[str], None]
) -> Demo:
    base = _side("base", MAIN, trees, folder / "base")
    sides = {"base": base, "head": _side("head", HARMLESS.branch, trees, folder / "head")}

    def judge(head: list[RunRecord], base: list[RunRecord], budget: float) -> Comparison:
        thresholds, _ = thresholds_for(Request((), ()), base or head)
        return compare_to_baseline(
            head,
            base,
            thresholds,
            paired=len(head) == len(base),
            budget=budget,
            source=source_between(project, base[-1], head[-1]) if base and head else None,
        )

    say(f"1. A harmless pull request changes train.py:\n{HARMLESS.diff}")
    progress = PairProgress(say, Plan(PAIRS))
    progress.started(sides["base"], sides["head"], folder)
    healthy, runs = run_pairs(
        Plan(PAIRS), lambda role: sides[role].run_with(), judge, progress, time.monotonic
    )
    say(f"\n2. A broken pull request changes train.py:\n{BROKEN.diff}")
    changed = _side("head", BROKEN.branch, trees, folder / FAULT)
    record = changed.run_with()
    say(f"one run       {speed_words(record)}" if record.perf.step_time.count else record.status)
    faulty = judge([record], runs.base, Plan(PAIRS).error_budget(PAIRS))
    return Demo(healthy, faulty, folder, changed.output_dir / record.run_id)


def _side(role: Role, branch: str, trees: Mapping[str, Path], output_dir: Path) -> Side:
    """Return the side that trains a branch with this Python."""
    tree = trees[branch]
    command = f"command={json.dumps([sys.executable, 'train.py'])}"
    config = tree / "canary.yaml"
    python = Path(sys.executable)
    return Side(
        *(role, branch, config, tree, python, os.environ, output_dir, (command,)), shows=True
    )


def _loss_gate(faulty: Comparison) -> list[str]:
    """Say what a gate on the loss would see, with the losses that the report shows."""
    before, after = (side.summary.get("final_loss") for side in (faulty.baseline, faulty.current))
    if not before or after is None:
        return []
    change = after / before - 1
    return [
        f"A gate on the loss ({END_LOSS}) sees {amount(before)} -> {amount(after)} ({change:+.1%}) "
        f"and {'passes' if change < USUAL_LOSS_GATE else 'fails'}.",
        "",
    ]


def demo_text(demo: Demo, faulty: str, program: str, width: int | None = None) -> str:
    """Return both answers as text, with commands to try next. `faulty` is the answer on the broken
    pull request, `program` the command that starts the canary, `width` that of the terminal."""
    sides = shlex.join([str(demo.faulty_run), str(demo.folder / "base")])
    lines = [
        "",
        _heading("1. The harmless pull request"),
        "",
        wrapped(demo.healthy.first_line, width),
        "",
        _heading("2. The broken pull request"),
        "",
        faulty.rstrip(),
        "",
        *(wrapped(line, width) for line in _loss_gate(demo.faulty)),
        _heading("What next"),
        "",
        "Compare any two runs:",
        f"  {program} compare {sides} --repository {shlex.quote(str(demo.project))}",
        "Record your own training, unmodified:",
        f"  {program} exec -- python train.py",
        "Is your branch worse than main? Set your command in the config, and compare:",
        f"  {program} init canary.yaml --type exec",
        f"  {program} ab canary.yaml --base main",
        "",
        f"Repository of this demo: {demo.project}",
        f"All checks: {demo.folder / FAULT / 'comparison.txt'}",
    ]
    return "\n".join(lines)


def _heading(words: str) -> str:
    return f"== {words} ".ljust(HEADING_WIDTH, "=")


def typed_as(started_as: str) -> str:
    """Return the command that starts this program again, from any folder; `started_as` is
    `sys.argv[0]`. The programs of an inactive virtual environment are not on PATH."""
    program = Path(started_as)
    if program.name == "__main__.py":
        return f"{shlex.quote(sys.executable)} -m canary"
    found = shutil.which(program.name)
    if found is None or ("/" in started_as and Path(found).resolve() != program.resolve()):
        return shlex.quote(str(program.absolute()))
    return program.name
