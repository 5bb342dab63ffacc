"""How far one signal of a guard is from what it should be."""

from __future__ import annotations

from dataclasses import dataclass


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
