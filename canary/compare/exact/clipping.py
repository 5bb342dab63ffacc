"""Clipping in a loop of one's own: what lies between the gradient of a backward and the one that
the optimizer gets. Pure."""

from __future__ import annotations

from canary.compare.exact.learning_stages import GRADIENT_NORM_FACTOR, ORDER, has_clipping
from canary.compare.exact.tolerances import Tolerance, relative_difference
from canary.compare.report import Difference
from canary.record.jsonio import number
from canary.record.types import RunRecord

SIGNAL = "applied_gradient"
CUT = 1e-3
"""A norm that is smaller by more than this share was clipped."""


def clipped_on_one_side(baseline: RunRecord, current: RunRecord, tolerance: Tolerance) -> bool:
    """Whether one side holds its first gradient only as the optimizer got it, and the other side's
    was the same there. So do older records of such loops, unless they named a phase `backward`."""
    known = [side.exact for side in (baseline, current) if has_clipping(side)]
    others = [side.exact for side in (baseline, current) if not has_clipping(side)]
    if len(known) != 1:
        return False
    total = number(others[0].get("first_gradient", {}).get("total"))
    applied = number((known[0]["clipping"].get("applied") or [None])[0])
    if total is None or applied is None:
        return False
    return relative_difference(total, applied) <= tolerance.gradient


def clipping_differences(
    baseline: RunRecord, current: RunRecord, tolerance: Tolerance
) -> list[Difference]:
    """The first step at which the optimizer gets another gradient, where no gradient differed
    before clipping up to it."""
    sides = [side.exact.get("clipping", {}) for side in (baseline, current)]
    series = [side.get(moment, []) for moment in ("before", "applied") for side in sides]
    for step, values in enumerate(zip(*series, strict=False), start=1):
        was, now, was_applied, now_applied = (number(value) for value in values)
        allowed = max(tolerance.gradient, GRADIENT_NORM_FACTOR * tolerance.at_step(step))
        if was is None or now is None or relative_difference(was, now) > allowed:
            return []
        size = relative_difference(was_applied, now_applied)
        if size > allowed:
            return [_difference(step, size, now, was_applied, now_applied)]
    return []


def _difference(
    step: int, size: float, before: float, was: float | None, now: float | None
) -> Difference:
    stage = "first_update" if step == 1 else "trajectory"
    shown = [f"{value:.6g}" if value is not None else "none" for value in (was, now)]
    words = " -> ".join(shown)
    return Difference(
        ORDER[stage],
        stage,
        SIGNAL,
        was,
        now,
        relative=size,
        detail=(
            f"gradient norm at the optimizer {words} at step {step} "
            f"(after backward {before:.6g} on both sides)"
        ),
        learned=True,
        step=step,
    )
