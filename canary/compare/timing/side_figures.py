"""The figures shown for a side: computed over all of its runs, and equal to those of its checks."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal

from canary.baseline.comparability import look_alone
from canary.compare.report import Check, Records, Side
from canary.compare.stability import BadSteps, bad_steps, largest
from canary.record.end_loss import end_loss

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


def side_of(
    records: Records, checks: Sequence[Check] = (), name: Literal["baseline", "current"] = "current"
) -> Side:
    """Return one side as shown: its newest run's commit, and figures over all of its runs, with
    those of the `checks` that were judged in their place."""
    if not records:
        return Side(())
    newest = records[-1]
    launches = newest.launches
    return Side(
        run_ids=tuple(record.run_id for record in records),
        name=newest.name,
        sha=newest.git.get("sha"),
        dirty=newest.git.get("dirty"),
        launches=sum(len(record.launches) for record in records),
        # From the launch if the loop reported no loss.
        steps=len(newest.stability.loss_values) or (launches[0].steps if launches else 0),
        summary=_over_all(records) | dict(_of_checks(checks, name)),
    )


def _over_all(records: Records) -> dict[str, Any]:
    losses = [loss for loss in map(end_loss, records) if loss is not None]
    # The peak of a look holds copies.
    peaks = (None if look_alone(record) else record.perf.max_mem_mb for record in records)
    found = {
        "step_time_median_s": _typical(record.perf.step_time.median for record in records),
        "step_time_mean_s": _typical(record.perf.step_time.mean for record in records),
        "step_time_p95_s": _typical(record.perf.step_time.p95 for record in records),
        "tokens_per_sec": _typical(record.perf.approx_tokens_per_sec for record in records),
        "max_mem_mb": _typical(peaks),
        "final_loss": statistics.median(losses) if losses else None,
    }
    kinds: tuple[BadSteps, ...] = ("nan_steps", "inf_steps")
    return found | {kind: largest(bad_steps(record, kind) for record in records) for kind in kinds}


def _typical(values: Iterable[float | None]) -> float | None:
    """Return the geometric mean of the positive values; None if no run had a timed step."""
    known = [value for value in values if value is not None and 0 < value < math.inf]
    return statistics.geometric_mean(known) if known else None


def _of_checks(checks: Sequence[Check], name: str) -> Iterator[tuple[str, Any]]:
    """Yield the figures of one side that checks have."""
    by_name = {check.name: check for check in checks if check.status != "skip"}
    for figure, (of_check, unit, factor) in CHECKED.items():
        check = by_name.get(of_check)
        value = getattr(check, name) if check is not None and check.unit == unit else None
        if value is not None:
            yield figure, value * factor if isinstance(value, int | float) else value
