"""The shape of a regression in a sentence: time and memory, alone or together. No cause yet."""

from __future__ import annotations

from collections.abc import Iterator

from canary.compare.report import Check, Comparison

TIME = (
    "step_time_median",
    "step_time_mean",
    "step_time_drift",
    "step_time_within_run",
    "cpu_time",
    "cpu_time_drift",
)
SPEED = {"step_time_median", "cpu_time"}
"""One of them, passed, tells of the speed."""
MEMORY = ("max_memory", "reserved_memory", "memory_growth", "live_tensors")
LEARNED = ("stability", "correctness")


def patterns(found: Comparison) -> Iterator[str]:
    """What got worse together; nothing where nothing did."""
    failed = {check.name: check for check in found.failed_checks}
    slower, larger = _first(failed, TIME), _first(failed, MEMORY)
    learned = [check for check in failed.values() if check.group in LEARNED]
    if "nan_steps" in failed or "raw_loss_finite" in failed:
        yield "the loss is no number at some step: what follows that step tells nothing"
    if slower and larger and learned:
        yield "time, memory and what is learned all got worse: look at config and packages first"
    elif slower and larger:
        yield "a step is slower and takes more memory: more work, fragmentation or a leak"
    elif slower:
        yield "a step is slower, and memory is stable: the work, its batches, or the host"
    elif larger:
        if _no_slower(found):
            yield "a step takes more memory, and is no slower: what is kept, not what is computed"
        else:
            yield "a step takes more memory; whether the speed changed is not decided"
    elif learned:
        yield f"other things are learned, {_speed(found)}"
    elif failed:
        yield "the same is learned by more work"


def _no_slower(found: Comparison) -> bool:
    """Whether a slower step is excluded: of the clock's checks, those that were made passed."""
    asked = [c for c in found.checks if c.name in TIME and c.status != "skip"]
    return bool(SPEED & {c.name for c in asked}) and all(c.status == "pass" for c in asked)


def _speed(found: Comparison) -> str:
    """What became of the speed, where nothing says that it got worse."""
    if not _no_slower(found):
        return "whether the speed changed is not decided"
    asked = (c for c in found.checks if c.name in SPEED and c.status != "skip")
    interval = next(asked).interval
    faster = interval is not None and interval[1] < 0.0
    return "and a step is faster" if faster else "at the same speed"


def _first(failed: dict[str, Check], names: tuple[str, ...]) -> Check | None:
    return next((failed[name] for name in names if name in failed), None)
