"""Describe a regression in a sentence by what got worse: time, memory or learning. No cause yet."""

from __future__ import annotations

from collections.abc import Iterator

from canary.compare.checks import CHECKS, is_metric_gate
from canary.compare.report import Check, Comparison, Group

TIME = tuple(name for name, row in CHECKS.items() if row.clock)
SPEED = {"step_time_median", "cpu_time"}
"""Checks of which one must pass before the speed counts as unchanged."""
AS_FAST_PCT = 5.0
"""A slowdown up to this is called none; above it, the sentence claims only the limit."""
MEMORY = ("max_memory", "reserved_memory", "memory_growth", "live_tensors")
LEARNED = ("stability", "correctness")


def patterns(found: Comparison) -> Iterator[str]:
    """Yield what got worse together, if anything did."""
    failed = {check.name: check for check in found.failed_checks}
    slower = _first(failed, TIME) or _gate(failed, "performance")
    larger = _first(failed, MEMORY) or _gate(failed, "memory")
    learned = [check for check in failed.values() if check.group in LEARNED]
    if "nan_steps" in failed or "raw_loss_finite" in failed:
        yield "the loss is not a number at some step: ignore what follows that step"
    if slower and larger and learned:
        yield "time, memory and learning all got worse: look at config and packages first"
    elif slower and larger:
        yield "each step is slower and takes more memory: more work, fragmentation or a leak"
    elif slower:
        yield "each step is slower, and memory is stable: look at work, batches and host"
    elif larger:
        if _no_slower(found):
            yield "each step takes more memory but no more time: look at what is kept, not computed"
        else:
            yield f"each step takes more memory; {_speed(found)}"
    elif learned:
        yield f"learning changed; {_speed(found)}"
    elif failed:
        yield "learning is unchanged, but each step does more work"


def _gate(failed: dict[str, Check], group: Group) -> Check | None:
    """Return the first failed gate of `metrics` in a group."""
    gates = (c for c in failed.values() if is_metric_gate(c.name) and c.group == group)
    return next(gates, None)


def _no_slower(found: Comparison) -> bool:
    """Return whether a slower step is excluded: all checks of time that ran passed."""
    asked = [c for c in found.checks if c.name in TIME and c.status != "skip"]
    return bool(SPEED & {c.name for c in asked}) and all(c.status == "pass" for c in asked)


def _speed(found: Comparison) -> str:
    """Return in words how the speed changed, if no check of it failed."""
    asked = [c for c in found.checks if c.name in TIME and c.status != "skip"]
    judged = [c for c in asked if c.name in SPEED]
    if not judged:
        return "speed was not judged"
    if any(c.status == "inconclusive" for c in asked):
        return "speed is too noisy to tell"
    if any(c.status == "warn" for c in asked):
        return "each step is slower, within its limit"
    interval = judged[0].interval
    most = None if interval is None else interval[1]
    if most is not None and most < 0.0:
        return "each step is faster"
    if most is None or most > AS_FAST_PCT:
        return "no slowdown beyond the limit"
    return "each step is as fast as before"


def _first(failed: dict[str, Check], names: tuple[str, ...]) -> Check | None:
    return next((failed[name] for name in names if name in failed), None)
