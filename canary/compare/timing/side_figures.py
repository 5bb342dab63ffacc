"""The figures shown for a side: computed over all of its runs, and equal to those of its checks."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from canary.baseline.comparability import look_alone
from canary.compare.report import Check, Side
from canary.compare.stability import bad_steps
from canary.record.end_loss import end_loss
from canary.record.types import RunRecord

CHECKED = {
    "step_time_median_s": ("step_time_median", "ms", 1e-3),
    "step_time_mean_s": ("step_time_mean", "ms", 1e-3),
    "tokens_per_sec": ("tokens_per_sec", "tokens/s", 1.0),
    "max_mem_mb": ("max_memory", "MB", 1.0),
    "final_loss": ("final_loss", "", 1.0),
    "nan_steps": ("nan_steps", "steps", 1),
    "inf_steps": ("inf_steps", "steps", 1),
}
"""Figure of a side: (check with the same figure, the check's unit, factor to the figure's unit)."""


def side_of(records: Sequence[RunRecord]) -> Side:
    """Return one side as shown: its newest run's commit, and figures over all of its runs."""
    if not records:
        return Side(())
    newest = records[-1]
    return Side(
        run_ids=tuple(record.run_id for record in records),
        name=newest.name,
        sha=newest.git.get("sha"),
        dirty=newest.git.get("dirty"),
        launches=sum(len(record.launches) for record in records),
        steps=_steps(newest),
        summary=_over_all(records),
    )


def _steps(record: RunRecord) -> int:
    """Return the steps of the newest run; from the launch if the loop reported no loss."""
    launches = record.launches
    return len(record.stability.loss_values) or (launches[0].steps if launches else 0)


def _most(counts: Iterable[int | None]) -> int | None:
    """Return the largest count; None without any."""
    return max((count for count in counts if count is not None), default=None)


def _over_all(records: Sequence[RunRecord]) -> dict[str, Any]:
    def typical(figure: Callable[[RunRecord], float | None]) -> float | None:
        return _geometric_mean(map(figure, records))

    losses = [loss for loss in map(end_loss, records) if loss is not None]
    return {
        "step_time_median_s": typical(lambda record: record.perf.step_time.median),
        "step_time_mean_s": typical(lambda record: record.perf.step_time.mean),
        "step_time_p95_s": typical(lambda record: record.perf.step_time.p95),
        "tokens_per_sec": typical(lambda record: record.perf.approx_tokens_per_sec),
        "max_mem_mb": typical(_peak),
        "final_loss": statistics.median(losses) if losses else None,
        "nan_steps": _most(bad_steps(record, "nan_steps") for record in records),
        "inf_steps": _most(bad_steps(record, "inf_steps") for record in records),
    }


def _peak(record: RunRecord) -> float | None:
    """Return the peak of memory in MB; None if it is that of the look, which holds copies."""
    return None if look_alone(record) else record.perf.max_mem_mb


def _geometric_mean(values: Iterable[float | None]) -> float | None:
    """Return the geometric mean of the positive values; None if no run had a timed step."""
    known = [value for value in values if value is not None and 0 < value < math.inf]
    return statistics.geometric_mean(known) if known else None


def figures_of_checks(
    checks: Sequence[Check], baseline: Mapping[str, Any], current: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the figures, (baseline, current), with those of checks in place of a side's."""
    by_name = {check.name: check for check in checks if check.status != "skip"}
    was, now = dict(baseline), dict(current)
    for figure, (name, unit, factor) in CHECKED.items():
        check = by_name.get(name)
        if check is None or check.unit != unit:
            continue
        for side, value in ((was, check.baseline), (now, check.current)):
            if isinstance(value, int | float):
                side[figure] = value * factor
            elif value is not None:
                side[figure] = value
    return was, now
