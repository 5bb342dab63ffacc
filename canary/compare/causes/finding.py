"""What one cause has to say: a mechanism, how strongly the facts tell for it, and by what."""

from __future__ import annotations

from dataclasses import dataclass

from canary.compare.suspects import Evidence, RegressionCategory


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
