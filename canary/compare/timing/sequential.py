"""Spend the error budget over several decisions of an A/B run.

By Bonferroni's bound, the budgets of the decisions add up to that of the family.
"""

from __future__ import annotations

from collections.abc import Sequence

from canary.compare.report import Check, Comparison
from canary.compare.timing.lane import DECISION_BUDGETS, FAMILY_BUDGET
from canary.record.types import RunRecord

DECISIONS = tuple(DECISION_BUDGETS)


def decision_budget(pairs: int) -> float:
    """Return the error budget of the decision after so many pairs; all of it for a fixed number."""
    return DECISION_BUDGETS.get(pairs, FAMILY_BUDGET)


def is_settled(found: Comparison) -> bool:
    """Return whether more pairs would change nothing."""
    return found.verdict != "inconclusive"


def exact_failures(found: Comparison) -> list[Check]:
    """Return the failed checks without noise, which more runs would not change."""
    return [c for c in found.checks if c.failed and c.lane in ("exact", "rule")]


def decided_by_exact(found: Comparison, base: Sequence[RunRecord]) -> bool:
    """Return whether an exact failure comes from the code, not from runs that do not repeat: two
    looks at the base show that."""
    looks = sum(bool(record.exact) + len(record.further_looks) for record in base)
    return bool(exact_failures(found)) and looks > 1
