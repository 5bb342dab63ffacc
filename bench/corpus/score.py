"""The result of comparing a row, whether it is right, and rates with intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from bench.corpus.row import Row
from canary.compare.report import Comparison

CAUGHT = ("regression", "changed")
BANDS = ((0.0, 0.5), (0.5, 0.7), (0.7, 0.9), (0.9, 1.0))
"""Claimed confidence: lower end included, upper end excluded, except 1."""
Z_95 = 1.959964
"""Two-sided 95% of the normal distribution."""


@dataclass(frozen=True)
class Outcome:
    """The result of comparing one row."""

    id: str
    corpus: str
    verdict: str
    first_difference: str
    """Stage and signal; empty if the exact lane found nothing."""
    expected: str | None
    also: str | None
    suspect: str | None
    """Category of the top suspect; None without a suspect."""
    confidence: float | None
    failed: tuple[str, ...] = ()
    """Checks that failed or ask for acceptance."""
    trouble: str = ""
    """Why the row could not be compared; such a row is neither caught nor right."""

    @property
    def caught(self) -> bool:
        """Return whether the verdict reports the change."""
        return self.verdict in CAUGHT

    @property
    def right(self) -> bool:
        """Return whether the row was caught and its top suspect has the expected category."""
        return self.caught and self.suspect is not None and self.suspect in self._classes()

    def _classes(self) -> tuple[str | None, ...]:
        return (self.expected, self.also)


def outcome(row: Row, corpus: str, found: Comparison) -> Outcome:
    """Return the outcome of a row's comparison."""
    first = found.first_difference
    suspects = found.diagnosis.suspects
    return Outcome(
        row.id,
        corpus,
        found.verdict,
        f"{first.stage}: {first.signal}" if first else "",
        row.category,
        row.also,
        str(suspects[0].category) if suspects else None,
        suspects[0].confidence if suspects else None,
        tuple(check.name for check in found.failed_checks),
    )


def troubled(row: Row, corpus: str, why: str) -> Outcome:
    """Return the outcome of a row that could not be compared."""
    return Outcome(row.id, corpus, "none", "", row.category, row.also, None, None, (), why)


def wilson(successes: int, trials: int) -> tuple[float, float]:
    """Return Wilson's 95% interval of a share; (0, 1) without trials.

    Source: Wilson (1927), Probable inference, the law of succession, and statistical inference.
    """
    if trials == 0:
        return 0.0, 1.0
    share, z2 = successes / trials, Z_95**2
    middle = share + z2 / (2 * trials)
    half = Z_95 * math.sqrt(share * (1 - share) / trials + z2 / (4 * trials**2))
    scale = 1 + z2 / trials
    return max(0.0, (middle - half) / scale), min(1.0, (middle + half) / scale)


@dataclass(frozen=True)
class Rate:
    """A number of successes in a number of trials."""

    name: str
    successes: int
    trials: int

    @property
    def interval(self) -> tuple[float, float]:
        """Return Wilson's 95% interval."""
        return wilson(self.successes, self.trials)

    def __str__(self) -> str:
        low, high = self.interval
        share = f"{self.successes / self.trials:.0%}" if self.trials else "-"
        return f"{self.successes} of {self.trials} ({share}, 95% {low:.0%} to {high:.0%})"


def rates(outcomes: Sequence[Outcome]) -> list[Rate]:
    """Return the rates of each corpus: faults caught, top suspects right, benign rows that failed.
    A corpus without rows has no rate."""
    found = []
    for corpus in ("listed", "blind", "second", "ppo", "ppo_blind"):
        rows = [one for one in outcomes if one.corpus == corpus]
        found.append(Rate(f"{corpus}, caught", sum(one.caught for one in rows), len(rows)))
        found.append(
            Rate(f"{corpus}, top suspect right", sum(one.right for one in rows), len(rows))
        )
    for corpus in ("benign", "ppo_benign", "ppo_blind_benign"):
        benign = [one for one in outcomes if one.corpus == corpus]
        wrong = sum(one.caught or bool(one.failed or one.trouble) for one in benign)
        found.append(Rate(f"{corpus}, failed", wrong, len(benign)))
    return [rate for rate in found if rate.trials]


@dataclass(frozen=True)
class Band:
    """Suspects with a claimed confidence within a band, and how many of them are right."""

    low: float
    high: float
    claimed: float
    """Mean claimed confidence."""
    right: Rate


def calibration(outcomes: Sequence[Outcome], corpus: str = "blind") -> list[Band]:
    """Return claimed and actual rates per band, of the caught rows."""
    claims = [
        (one.confidence, one.right)
        for one in outcomes
        if one.corpus == corpus and one.caught and one.confidence is not None
    ]
    bands = []
    for low, high in BANDS:
        last = high == BANDS[-1][1]
        inside = [(c, ok) for c, ok in claims if low <= c and (c < high or (last and c <= high))]
        if inside:
            mean = sum(claim for claim, _ in inside) / len(inside)
            right = Rate(f"{low:.1f} to {high:.1f}", sum(ok for _, ok in inside), len(inside))
            bands.append(Band(low, high, mean, right))
    return bands
