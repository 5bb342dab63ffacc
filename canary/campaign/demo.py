"""`canary demo`: on the embedded canary, a healthy change passes and a silent fault is caught."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from canary.campaign.pairs import PairProgress, Plan, Role, run_pairs, speed_words
from canary.campaign.side import Side, claimed
from canary.compare.paths import Request, thresholds_for
from canary.compare.report import Comparison
from canary.compare.stats import compare_to_baseline
from canary.config.load import BUILTIN
from canary.record.end_loss import END_LOSS
from canary.record.types import RunRecord
from canary.report.lines import wrapped
from canary.runner.child_environment import require_training_stack
from canary.runner.warm import warm_starts

CONFIG = BUILTIN.with_name("demo.yaml")
CHANGE = Path(__file__).parent / "demo_change"
PAIRS = 3
USUAL_LOSS_GATE = 0.05
"""The smallest rise that a usual gate on the loss stops: 5%."""


@dataclass(frozen=True)
class Demo:
    """Both comparisons, and where their runs are."""

    healthy: Comparison
    faulty: Comparison
    folder: Path
    faulty_run: Path
    """Folder of the run whose EOS was masked."""

    @property
    def as_promised(self) -> bool:
        """Whether the fault was caught and the healthy change did not fail."""
        return self.healthy.verdict in ("pass", "inconclusive") and (
            self.faulty.verdict == "regression"
        )


@warm_starts()
def run_demo(output_dir: Path, say: Callable[[str], None]) -> Demo:
    """Run three healthy pairs, and one run with a change that masks EOS labels.

    Raises:
        UsageError: the packages for training are missing.
        MachineError: a run left no record.
    """
    require_training_stack()
    folder = (output_dir / f"demo-{datetime.now(UTC):%Y%m%d-%H%M%S}").absolute()
    claimed(folder)
    labels: dict[Role, str] = {"base": "this version", "head": "the same version"}
    sides = {
        role: Side(role, label, CONFIG, Path.cwd(), Path(sys.executable), os.environ, folder / role)
        for role, label in labels.items()
    }

    def launch(role: Role) -> RunRecord:
        return sides[role].run()

    def judge(head: list[RunRecord], base: list[RunRecord], budget: float) -> Comparison:
        thresholds, _ = thresholds_for(Request((), ()), base or head)
        return compare_to_baseline(
            head, base, thresholds, paired=len(head) == len(base), budget=budget
        )

    say("1. A change without effect: the embedded DPO canary, three pairs of runs.")
    say("   Runs this short may become 50% slower per step; the limit of a real canary is 10%.")
    progress = PairProgress(say, Plan(PAIRS))
    progress.started(sides["base"], sides["head"], folder)
    healthy, runs = run_pairs(Plan(PAIRS), launch, judge, progress, time.monotonic)
    say("")
    say("2. A change that masks the EOS of every answer, like pad_token = eos_token.")
    changed = Side(
        "head",
        "masked EOS",
        CONFIG,
        Path.cwd(),
        Path(sys.executable),
        _with_change(os.environ),
        folder / "masked_eos",
    )
    record = changed.run()
    say(f"one run       {speed_words(record)}" if record.perf.step_time.count else record.status)
    faulty = judge([record], runs.base, Plan(PAIRS).error_budget(PAIRS))
    return Demo(healthy, faulty, folder, changed.output_dir / record.run_id)


def _with_change(base: os._Environ[str]) -> dict[str, str]:
    path = os.pathsep.join(filter(None, (str(CHANGE), base.get("PYTHONPATH"))))
    return {**base, "PYTHONPATH": path}


def _loss_gate(faulty: Comparison) -> list[str]:
    """Say what a gate on the loss would see, with the losses that the report shows."""
    before, after = (side.summary.get("final_loss") for side in (faulty.baseline, faulty.current))
    if not before or after is None:
        return []
    change = after / before - 1
    return [
        f"A gate on the loss ({END_LOSS}) sees {before:.4f} -> {after:.4f} ({change:+.1%}) and "
        f"{'passes' if change < USUAL_LOSS_GATE else 'fails'}.",
        "",
    ]


def demo_text(demo: Demo, faulty: str, program: str, width: int | None = None) -> str:
    """Return both answers as text, with commands to try next. `faulty` is the rendered comparison
    of the fault, `program` the command that starts the canary, `width` that of the terminal."""
    sides = shlex.join([str(demo.faulty_run), str(demo.folder / "base")])
    lines = [
        "",
        "== 1. The change without effect " + "=" * 46,
        "",
        wrapped(demo.healthy.first_line, width),
        f"Full report: {demo.folder / 'head' / 'comparison.txt'}",
        "",
        "== 2. The change that masks the EOS of every answer " + "=" * 26,
        "",
        faulty.rstrip(),
        "",
        *_loss_gate(demo.faulty),
        "== What next " + "=" * 65,
        "",
        "Why is the second change worse?",
        f"  {program} explain {sides}",
        "Your canary: write a config, put your model and data into it, and run it.",
        f"  {program} init-config canary.yaml --type dpo",
        f"  {program} run canary.yaml",
        "How small a slowdown can this machine detect?",
        f"  {program} calibrate canary.yaml -n 10",
        "Is your branch worse than main? In a git repository that holds the config:",
        f"  {program} ab canary.yaml --base main",
        "",
        f"Records of this demo: {demo.folder}",
    ]
    return "\n".join(lines)


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
