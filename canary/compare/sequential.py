"""Looking more than once: the error budget spent across the looks of an A/B run.

Bonferroni's bound over the looks: their budgets add up to the family's, whatever is decided when.
"""

from __future__ import annotations

from canary.compare.report import Comparison
from canary.compare.timing import FAMILY_BUDGET, LOOK_BUDGETS

LOOKS = tuple(LOOK_BUDGETS)


def look_budget(pairs: int) -> float:
    """The error budget of the look after so many pairs; the whole one for a fixed number."""
    return LOOK_BUDGETS.get(pairs, FAMILY_BUDGET)


def is_settled(found: Comparison) -> bool:
    """Whether more pairs would change nothing."""
    return found.verdict != "inconclusive"
