"""The loss at the end of a run: the one number that the terminal, reports and checks show."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from canary.record.digits import significant
from canary.record.types import RunRecord

TAIL_SHARE = 10
END_LOSS = "mean of the last tenth of the steps"


def finite(values: Sequence[float]) -> list[float]:
    """The finite values."""
    return [value for value in values if math.isfinite(value)]


def tail_mean(values: Sequence[float]) -> float | None:
    """Mean of the last tenth of the finite values, at least two; None if fewer are finite, and
    infinite if their sum is."""
    kept = finite(values)
    count = max(2, len(kept) // TAIL_SHARE)
    try:
        return statistics.fmean(kept[-count:]) if len(kept) >= 2 else None
    except OverflowError:
        return math.inf


def end_value(values: Sequence[float]) -> float | None:
    """Mean of the last tenth; the last value if that is not finite."""
    return (
        tail_mean(values) if values and math.isfinite(values[-1]) else next(iter(values[-1:]), None)
    )


def end_loss(record: RunRecord) -> float | None:
    """`end_value` of a run's losses; None for a training that ended after its look."""
    return None if record.config.get("exact") else end_value(record.stability.loss_values)


def end_loss_words(record: RunRecord) -> str:
    """The loss at the end, labelled; empty if the run reported no loss."""
    losses = record.stability.loss_values
    if losses and record.config.get("exact"):
        return f"none: the training ended after its look, with loss {significant(losses[-1])}"
    loss = end_loss(record)
    first = ", first launch" if len(record.launches) > 1 else ""
    if loss is None or not math.isfinite(loss):
        return f"{significant(losses[-1])} (last step{first})" if losses else ""
    return f"{significant(loss)} ({END_LOSS}{first})"
