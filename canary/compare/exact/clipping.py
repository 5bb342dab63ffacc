"""Clipping in a custom training loop: the gradient after backward and at the optimizer. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from canary.compare.exact.learning_stages import GRADIENT_NORM_FACTOR, has_clipping
from canary.compare.exact.signal_kinds import Sides, Signal
from canary.compare.exact.tolerances import relative_difference
from canary.compare.report import Difference

Compare = Callable[[Signal, Sides], list[Difference]]

SIGNAL = "applied_gradient"
CUT = 1e-3
"""A norm that drops by more than this share was clipped."""


def before_clipping(compare: Compare) -> Compare:
    """Wrap a comparison of first gradients: no differences if `clipped_on_one_side`."""

    def compared(signal: Signal, sides: Sides) -> list[Difference]:
        return [] if clipped_on_one_side(sides) else compare(signal, sides)

    return compared


def clipped_on_one_side(sides: Sides) -> bool:
    """Whether one side recorded its first gradient only at the optimizer, and the sides agree
    there. Older records of custom loops do so, unless the loop named a phase `backward`."""
    both = (sides.baseline, sides.current)
    known = [side.exact for side in both if has_clipping(side)]
    others = [side.exact for side in both if not has_clipping(side)]
    if len(known) != 1:
        return False
    total = others[0].get("first_gradient", {}).get("total")
    applied = (known[0]["clipping"].get("applied") or [None])[0]
    if total is None or applied is None:
        return False
    return relative_difference(total, applied) <= sides.tolerance.gradient


def applied_gradient(signal: Signal, sides: Sides) -> list[Difference]:
    """Return the first step whose gradient differs at the optimizer, if no gradient before
    clipping differs up to that step."""
    before, after = sides.read(lambda exact: exact.get("clipping", {}))
    tolerance = sides.tolerance
    norms = (before.get("before", []), after.get("before", []))
    applied = (before.get("applied", []), after.get("applied", []))
    series = zip(*norms, *applied, strict=False)
    for step, (was, now, was_applied, now_applied) in enumerate(series, start=1):
        allowed = max(tolerance.gradient, GRADIENT_NORM_FACTOR * tolerance.at_step(step))
        if was is None or now is None or relative_difference(was, now) > allowed:
            return []
        size = relative_difference(was_applied, now_applied)
        if size > allowed:
            shown = [f"{v:.6g}" if v is not None else "none" for v in (was_applied, now_applied)]
            words = (
                f"gradient norm at the optimizer {' -> '.join(shown)} at step {step}, but after "
                f"backward {now:.6g} on both sides"
            )
            found = signal.differs(was_applied, now_applied, words, relative=size, step=step)
            return [found if step == 1 else replace(found, stage="trajectory")]
    return []
