"""Judge whether generation samples from the policy, from what a probe saw (see
`canary.training.trainers.on_policy`). Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from canary.record.exact import DrawnStep, Exact

GAP = "generation off its policy"
RANK = "rank of drawn tokens"
ODDS = 1e-9
"""Chance that a mean rank is out of tolerance although the tokens come from the policy."""
UNFIT = 0.3
"""A baseline whose generation differs from its policy by more than this cannot be a reference."""


@dataclass(frozen=True)
class Deviation:
    """The difference of one signal at one step from the baseline's, or from its expected value."""

    signal: str
    step: int
    expected: float
    found: float
    relative: float
    """|found - expected| over the signal's largest baseline value, at least FLOOR; the absolute
    difference for generation."""
    tolerance: float

    @property
    def share(self) -> float:
        """The difference as a share of the tolerance; above 1 the guard is broken."""
        return self.relative / self.tolerance

    @property
    def words(self) -> str:
        """Signal, step and both values."""
        return f"{self.signal} {self.expected:.6g} -> {self.found:.6g} at step {self.step}"


def of_generation(baseline: Exact, level: Exact, allowed: float) -> list[Iterator[Deviation]]:
    """Return gap and rank of each step whose generation was examined.

    Twice the baseline's gap is allowed too, because forwards of quantized layers differ.
    """
    if unfit(baseline):
        return []
    steps = examined_steps(level)
    tolerance = max(allowed, 2 * largest_gap(baseline))
    signals = []
    if any(step.get("gap") is not None for step in steps):
        signals.append(_gaps(steps, tolerance))
    if any(step.get("rank") is not None for step in steps):
        signals.append(_ranks(steps))
    return signals


def unfit(baseline: Exact) -> bool:
    """Whether the baseline's generation does not sample from its policy."""
    ranks = (one.share > 1 for one in _ranks(examined_steps(baseline)))
    return largest_gap(baseline) > UNFIT or any(ranks)


def examined_steps(exact: Exact) -> list[DrawnStep]:
    """Return the steps whose generation was examined."""
    return exact.get("generation", {}).get("steps", [])


def largest_gap(exact: Exact) -> float:
    """Return the largest gap of a probe's steps; 0 without any."""
    gaps = (step.get("gap") for step in examined_steps(exact))
    return max((gap for gap in gaps if gap is not None), default=0.0)


def _gaps(steps: list[DrawnStep], tolerance: float) -> Iterator[Deviation]:
    for step in steps:
        if (gap := step.get("gap")) is not None:
            yield Deviation(GAP, step["step"], 0.0, gap, gap, tolerance)


def _ranks(steps: list[DrawnStep]) -> Iterator[Deviation]:
    """Bound the mean of n ranks in [0, 1], each with expectation 1/2 given the earlier ones: it is
    off by more than sqrt(ln(2 / odds) / 2n) with a chance of at most `odds` (Azuma 1967)."""
    for step in steps:
        if (rank := step.get("rank")) is not None:
            tolerance = math.sqrt(math.log(2 / ODDS) / (2 * step["ranked"]))
            yield Deviation(RANK, step["step"], 0.5, rank, abs(rank - 0.5), tolerance)
