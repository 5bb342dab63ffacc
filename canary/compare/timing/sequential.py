"""Spend the error budget over several looks at an A/B run.

By Bonferroni's bound, the budgets of the looks add up to that of the family.
"""

from __future__ import annotations

from collections.abc import Sequence

from canary.compare.report import Check, Comparison
from canary.compare.timing.lane import FAMILY_BUDGET, LOOK_BUDGETS
from canary.record.types import RunRecord

LOOKS = tuple(LOOK_BUDGETS)


def look_budget(pairs: int) -> float:
    """Return the error budget of the look after so many pairs; all of it for a fixed number."""
    return LOOK_BUDGETS.get(pairs, FAMILY_BUDGET)


def is_settled(found: Comparison) -> bool:
    """Return whether more pairs would change nothing."""
    return found.verdict != "inconclusive"


def exact_failures(found: Comparison) -> list[Check]:
    """Return the failed checks without noise, which more runs would not change."""
    return [c for c in found.checks if c.status == "fail" and c.lane in ("exact", "invariant")]


def decided_by_exact(found: Comparison, base: Sequence[RunRecord]) -> bool:
    """Return whether an exact failure comes from the code, not from runs that do not repeat: two
    looks at the base show that."""
    looks = sum(bool(record.exact) + len(record.further_looks) for record in base)
    return bool(exact_failures(found)) and looks > 1
