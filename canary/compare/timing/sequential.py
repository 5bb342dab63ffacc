"""Looking more than once: the error budget spent across the looks of an A/B run.

Bonferroni's bound over the looks: their budgets add up to the family's, whatever is decided when.
"""

from __future__ import annotations

from collections.abc import Sequence

from canary.compare.report import Check, Comparison
from canary.compare.timing.lane import FAMILY_BUDGET, LOOK_BUDGETS
from canary.record.types import RunRecord

LOOKS = tuple(LOOK_BUDGETS)
SAME_TRAINING = 0.01
"""Losses of a probe and of the launch beside it differ by less, as a share of the largest: other
kernels move them by less, another order of the data or other dropout by more."""


def look_budget(pairs: int) -> float:
    """The error budget of the look after so many pairs; the whole one for a fixed number."""
    return LOOK_BUDGETS.get(pairs, FAMILY_BUDGET)


def is_settled(found: Comparison) -> bool:
    """Whether more pairs would change nothing."""
    return found.verdict != "inconclusive"


def exact_failures(found: Comparison) -> list[Check]:
    """Failed checks that have no noise: more runs would not take them back."""
    return [c for c in found.checks if c.status == "fail" and c.lane in ("exact", "invariant")]


def decided_by_exact(
    found: Comparison, head: Sequence[RunRecord], base: Sequence[RunRecord]
) -> bool:
    """Whether a failure of the exact lane is the code's: two probes of the base show what differs
    between equal runs, and before there are two, each run has to repeat itself."""
    if not exact_failures(found):
        return False
    probes = sum(bool(record.exact) for record in base)
    return probes > 1 or all(repeats_itself(record) for record in (*head, *base))


def repeats_itself(record: RunRecord) -> bool:
    """Whether its probe and its measured launch had the same losses, step by step."""
    probe = record.exact.get("trajectory", {}).get("losses", [])
    measured = record.stability.loss_values
    both = [(a, b) for a, b in zip(probe, measured, strict=False) if a is not None]
    largest = max((abs(loss) for pair in both for loss in pair), default=0.0)
    return bool(both) and all(abs(a - b) <= SAME_TRAINING * largest for a, b in both)
