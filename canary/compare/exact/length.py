"""Where a training ends: by itself, or because the canary ended it. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from canary.compare.exact.sides import Sides, learned
from canary.compare.report import Difference
from canary.record.types import RunRecord

LENGTH = "steps"
"""The signal of the trajectory that says how long the training is."""


@dataclass(frozen=True)
class Length:
    """What a record says of the length of its training."""

    steps: int
    """Recorded ones."""
    known: bool
    """Whether the training ended by itself after them."""


def length_of(record: RunRecord) -> Length:
    """Return how long a training was. After a look, or after `max_steps`, the canary ended it."""
    most, completed = _given(record, "max_steps"), record.status == "completed"
    if record.config.get("exact"):
        looked = _given(record, "look_steps") or 0
        steps = record.exact.get("steps", 0)
        return Length(steps, completed and 0 < steps < min(looked, most or looked))
    lengths = {one.steps for one in record.launches if one.status == "completed"}
    steps = min(lengths, default=0)
    cut = most is not None and steps + record.first_step - 1 >= most
    return Length(steps, completed and len(lengths) == 1 and steps > 0 and not cut)


def _given(record: RunRecord, key: str) -> int | None:
    """Return an integer of the config; a stranger may have written it."""
    value = record.config.get(key)
    return value if isinstance(value, int) else None


def length(sides: Sides) -> list[Difference]:
    """Compare where the trainings end. Of whole trainings, only one that goes on longer: lost steps
    have a check of their own, `steps_trained`."""
    was, now = length_of(sides.baseline), length_of(sides.current)
    whole = not any(side.config.get("exact") for side in (sides.baseline, sides.current))
    if now.known and now.steps < was.steps and not whole:
        other = f"after {was.steps}" if was.known else "goes on"
        words = f"the training ends after {now.steps} steps, the baseline's {other}"
    elif was.known and was.steps < now.steps:
        words = f"the training goes on after step {was.steps}, the baseline's ends there"
        if now.known:
            words = f"the training ends after {now.steps} steps, the baseline's after {was.steps}"
    else:
        return []
    before, after = (was.steps, now.steps) if was.known and now.known else (None, None)
    step = min(was.steps, now.steps) + 1
    return [learned("trajectory", LENGTH, before, after, words, step=step)]
