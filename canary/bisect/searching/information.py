"""How much a launch is expected to tell, and how many launches a search is expected to take."""

from __future__ import annotations

import math

from canary.compare.bisect_cost import ENDS_SHARE as ENDS_SHARE
from canary.compare.bisect_cost import FIRST_LAUNCHES
from canary.compare.bisect_cost import LEVEL as LEVEL
from canary.compare.bisect_cost import launches_needed as launches_needed
from canary.compare.bisect_cost import told_by as told_by
from canary.compare.timing.estimate import Spread

TYPICAL_SD = 0.05
"""Of one launch if nothing was measured."""


def expected_runs(
    count: int, *, spread: Spread | None, effect: float, level: float = LEVEL
) -> float:
    """Return about how many launches a noisy search takes among `count` suspects.

    `effect` is the expected change as a logarithm, `spread` that of one launch.
    """
    sd = spread.sd if spread is not None else TYPICAL_SD
    return FIRST_LAUNCHES + launches_needed(math.log2(max(count, 1)), level, effect, max(sd, 1e-4))
