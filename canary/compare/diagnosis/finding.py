"""What one cause has to say: a mechanism, how strongly the facts tell for it, and by what."""

from __future__ import annotations

from dataclasses import dataclass

from canary.compare.diagnosis.suspects import Evidence, RegressionCategory


@dataclass(frozen=True)
class Finding:
    """One reason to suspect a mechanism."""

    category: RegressionCategory
    strength: float
    """How often a case that looks like this is of this category, rivals aside: 0 to 1."""
    description: str
    """One sentence: what happened."""
    evidence: tuple[Evidence, ...] = ()
    actions: tuple[str, ...] = ()
    """What to do, the first thing first."""
    sign: str = ""
    """The count, phase or share of time that it rests on, by a name of `chains.FOLLOWS`; empty for
    what is learned, and for settings."""
    equal: tuple[str, ...] = ()
    """Stages that it takes to be equal: it is weaker where a side did not record one."""

    def __post_init__(self) -> None:
        """Raises:
        ValueError: a strength that is no share.
        """
        if not 0.0 <= self.strength <= 1.0:
            raise ValueError(f"the strength of a finding is a share, 0 to 1, not {self.strength}")
