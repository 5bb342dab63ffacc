"""How the metrics of a drawer share one budget of false alarms.

At each look at a drawer, something is found where nothing changed with a probability of at most
`FAMILY_BUDGET`. It is spent in four steps:

1. Without a noise model, a part is kept back for what the normal distribution does not cover.
2. Median step time, the steadiest number, gets half of it. All other metrics share the rest.
3. Of a metric's share, one part is for its drift, the rest for its steps.
4. Steps share theirs among all places where a level can begin, and among both directions
   (Bonferroni). So a longer search costs as much as it can find by chance.

The looks at a history follow each other and see nearly the same runs. Their false alarms together
are measured, not bounded (docs/figures.md).
"""

from __future__ import annotations

from collections.abc import Sequence

from canary.compare.timing.lane import FAMILY_BUDGET, NO_MODEL_SHARE

FIRST = "step_time_median"
FIRST_SHARE = 0.5


def budget_of(metric: str, followed: Sequence[str], modelled: bool) -> float:
    """Return the error budget of one metric.

    `followed`: all metrics of the drawer. `modelled`: whether its noise was calibrated.
    """
    whole = FAMILY_BUDGET * (1.0 if modelled else NO_MODEL_SHARE)
    others = len(followed) - (FIRST in followed)
    if FIRST not in followed:
        return whole / max(1, others)
    if metric == FIRST:
        return whole * (FIRST_SHARE if others else 1.0)
    return whole * (1 - FIRST_SHARE) / others
