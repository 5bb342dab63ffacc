"""Losses and gradients are numbers."""

from __future__ import annotations

import math

from canary.compare.rules.rule import Answer, Rule, answer, not_asked
from canary.record.types import RunRecord


def judge(record: RunRecord) -> Answer:
    """Look at the raw losses, before a filter of the trainer hides one."""
    trajectory = record.exact.get("trajectory", {})
    bad = [
        f"{what} of step {step}"
        for what, series in (
            ("loss", trajectory.get("losses", [])),
            ("gradient norm", trajectory.get("grad_norms", [])),
        )
        for step, value in enumerate(series, start=1)
        if value is not None and not math.isfinite(value)
    ]
    if all(value is None for value in trajectory.get("losses", [])):
        return not_asked("no loss was recorded")
    words = f"{len(bad)} losses or gradient norms are not finite"
    return answer(bool(bad), words, size=len(bad), items=bad, place=bad[0] if bad else "")


RULE = Rule(
    "raw_loss_finite",
    "losses and gradients of the look are finite",
    "",
    "look at the rows of the first such step: an empty label row, a division by 0, or an overflow "
    "in half precision",
    "https://github.com/unslothai/unsloth/issues/3006",
    judge,
    fatal=True,
)
