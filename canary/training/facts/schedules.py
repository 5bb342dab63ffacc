"""Schedulers of torch that step in the look: their lengths, and their steps in each update."""

from __future__ import annotations

import functools
from typing import Any

from torch.optim.lr_scheduler import LRScheduler

from canary.record.facts import Schedule

TOTALS = {"CosineAnnealingLR": "T_max", "OneCycleLR": "total_steps", "PolynomialLR": "total_iters"}
"""The attribute that holds the length, by the scheduler's class."""
TOTAL = "num_training_steps"
"""The argument of transformers' schedules that holds it."""


class Schedules:
    """All schedulers that step; those that step only as part of another are counted alone."""

    def __init__(self) -> None:
        self._found: dict[int, tuple[LRScheduler, Schedule]] = {}
        self.updates = 0
        """Those that have ended: the steps that follow belong to the last one."""

    def step_begins(self, scheduler: LRScheduler) -> None:
        """A scheduler steps."""
        # The first step is part of its construction.
        if not self.updates or not getattr(scheduler, "_step_count", 0):
            return
        known = self._found.get(id(scheduler))
        if known is None:
            described: Schedule = {"class": type(scheduler).__name__[:80], "steps": []}
            described["begun_at"] = int(scheduler.last_epoch)
            total = length_of(scheduler)
            if total is not None:
                described["length"] = total
            known = self._found[id(scheduler)] = (scheduler, described)
        steps = known[1]["steps"]
        steps += [0] * (self.updates - len(steps))
        steps[-1] += 1

    def described(self) -> list[Schedule]:
        """Return the schedulers that stepped, and forget them."""
        found = [described for _, described in self._found.values()]
        self._found = {}
        return found


def length_of(scheduler: LRScheduler) -> int | None:
    """Return the steps after which a schedule is over, if it says so."""
    total: Any = getattr(scheduler, TOTALS.get(type(scheduler).__name__, ""), None)
    for rate in getattr(scheduler, "lr_lambdas", ()):
        if isinstance(rate, functools.partial):
            total = rate.keywords.get(TOTAL)
        elif TOTAL in getattr(getattr(rate, "__code__", None), "co_freevars", ()):
            cell = rate.__closure__[rate.__code__.co_freevars.index(TOTAL)]
            total = cell.cell_contents
    return int(total) if isinstance(total, int) and not isinstance(total, bool) else None
