"""The runs of an output folder as a table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from canary.errors import printable
from canary.record.end_loss import end_loss
from canary.record.runs import StoredRun
from canary.report.lines import aligned
from canary.report.numbers import amount

HEADINGS = ("run", "status", "steps", "step time", "peak memory", "final loss")


def runs_text(runs: Sequence[StoredRun], folder: Path) -> str:
    """Return one line per run."""
    if not runs:
        return printable(f"{folder} holds no runs")
    rows = [(str(run.path.relative_to(folder)), *cells(run)[1:]) for run in runs]
    return "\n".join(map(printable, aligned([HEADINGS, *rows])))


def cells(run: StoredRun) -> tuple[str, ...]:
    """Return what the table says about one run."""
    record = run.record
    if record is None:
        return (run.path.name, "unreadable", "", "", "", "")
    steps = len(record.stability.loss_values) or max(
        (launch.steps for launch in record.launches), default=0
    )
    timed = record.perf.step_time.count > 0
    return (
        run.path.name,
        record.status,
        str(steps),
        amount(1e3 * record.perf.step_time.median, "ms") if timed else "-",
        amount(record.perf.max_mem_mb, "MB"),
        amount(end_loss(record)),
    )
