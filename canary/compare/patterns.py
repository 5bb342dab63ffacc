"""The shape of a regression in a sentence: time and memory, alone or together. No cause yet."""

from __future__ import annotations

from collections.abc import Iterator

from canary.compare.report import Check, Comparison

TIME = ("step_time_median", "step_time_mean", "step_time_drift")
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
        yield "a step takes more memory, and is no slower: what is kept, not what is computed"
    elif learned:
        yield "other things are learned, at the same speed"
    elif failed:
        yield "the same is learned by more work"


def _first(failed: dict[str, Check], names: tuple[str, ...]) -> Check | None:
    return next((failed[name] for name in names if name in failed), None)
