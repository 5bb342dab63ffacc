"""Whether a guard's generation draws from the policy: from what its probe saw of it (see
`canary.training.trainers.on_policy`). Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from canary.record.exact import DrawnStep, Exact

GAP = "generation off its policy"
RANK = "rank of drawn tokens"
ODDS = 1e-9
"""Chance of a mean rank out of tolerance where the draws are the policy's."""
UNFIT = 0.3
"""A baseline whose own generation is farther than this from its policy is no measure of others."""


@dataclass(frozen=True)
class Deviation:
    """One signal of one step against the baseline's, or against what it is by itself."""

    signal: str
    step: int
    expected: float
    found: float
    relative: float
    """|found - expected| over the largest that the signal is at the baseline, at least FLOOR; of
    generation the difference itself."""
    tolerance: float

    @property
    def share(self) -> float:
        """Of the tolerance: above 1 it is broken."""
        return self.relative / self.tolerance

    @property
    def words(self) -> str:
        """Signal, step and both values."""
        return f"{self.signal} {self.expected:.6g} -> {self.found:.6g} at step {self.step}"


def of_generation(baseline: Exact, level: Exact, allowed: float) -> list[Iterator[Deviation]]:
    """The gap and the rank of each step that was looked at; of each that was not, nothing.

    Twice the baseline's own gap is allowed as well: of quantized layers no two forwards agree.
    """
    if unfit(baseline):
        return []
    steps = looked_at(level)
    tolerance = max(allowed, 2 * own_gap(baseline))
    signals = []
    if any(step.get("gap") is not None for step in steps):
        signals.append(_gaps(steps, tolerance))
    if any(step.get("rank") is not None for step in steps):
        signals.append(_ranks(steps))
    return signals


def unfit(baseline: Exact) -> bool:
    """Whether the baseline's own generation does not draw from its policy."""
    ranks = (one.share > 1 for one in _ranks(looked_at(baseline)))
    return own_gap(baseline) > UNFIT or any(ranks)


def looked_at(exact: Exact) -> list[DrawnStep]:
    """What was seen of each step whose generation was looked at."""
    return exact.get("generation", {}).get("steps", [])


def own_gap(exact: Exact) -> float:
    """The largest gap of its steps; 0 where none was seen."""
    gaps = (step.get("gap") for step in looked_at(exact))
    return max((gap for gap in gaps if gap is not None), default=0.0)


def _gaps(steps: list[DrawnStep], tolerance: float) -> Iterator[Deviation]:
    for step in steps:
        if (gap := step.get("gap")) is not None:
            yield Deviation(GAP, step["step"], 0.0, gap, gap, tolerance)


def _ranks(steps: list[DrawnStep]) -> Iterator[Deviation]:
    """The mean of n ranks in [0, 1] whose expectations are 1/2, whatever was drawn before, is
    farther off than sqrt(ln(2 / odds) / 2n) with no more than these odds (Azuma 1967)."""
    for step in steps:
        if (rank := step.get("rank")) is not None:
            tolerance = math.sqrt(math.log(2 / ODDS) / (2 * step["ranked"]))
            yield Deviation(RANK, step["step"], 0.5, rank, abs(rank - 0.5), tolerance)
