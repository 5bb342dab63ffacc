"""Spend the error budget over several looks at an A/B run.

By Bonferroni's bound, the budgets of the looks add up to that of the family.
"""

from __future__ import annotations

from collections.abc import Sequence

from canary.compare.report import Check, Comparison
from canary.compare.timing.lane import FAMILY_BUDGET, LOOK_BUDGETS
from canary.record.types import RunRecord

LOOKS = tuple(LOOK_BUDGETS)
SAME_TRAINING = 0.01
"""Losses of a probe and its measured launch may differ by this share of the largest loss. Other
kernels move them by less; another data order or other dropout moves them by more."""


def look_budget(pairs: int) -> float:
    """Return the error budget of the look after so many pairs; all of it for a fixed number."""
    return LOOK_BUDGETS.get(pairs, FAMILY_BUDGET)


def is_settled(found: Comparison) -> bool:
    """Return whether more pairs would change nothing."""
    return found.verdict != "inconclusive"


def exact_failures(found: Comparison) -> list[Check]:
    """Return the failed checks without noise, which more runs would not change."""
    return [c for c in found.checks if c.status == "fail" and c.lane in ("exact", "invariant")]


def decided_by_exact(
    found: Comparison, head: Sequence[RunRecord], base: Sequence[RunRecord]
) -> bool:
    """Return whether an exact failure comes from the code, not from runs that do not repeat.

    Two probes of the base show that. With fewer, the launches of each run must agree.
    """
    if not exact_failures(found):
        return False
    probes = sum(bool(record.exact) for record in base)
    return probes > 1 or all(repeats_itself(record) for record in (*head, *base))


def repeats_itself(record: RunRecord) -> bool:
    """Return whether the probe and the measured launch had the same losses, step by step."""
    probe = record.exact.get("trajectory", {}).get("losses", [])
    measured = record.stability.loss_values
    both = [(a, b) for a, b in zip(probe, measured, strict=False) if a is not None]
    largest = max((abs(loss) for pair in both for loss in pair), default=0.0)
    return bool(both) and all(abs(a - b) <= SAME_TRAINING * largest for a, b in both)
