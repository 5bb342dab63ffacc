"""The result of a diagnosis: ranked suspects, each with its evidence. Pure data."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal


class RegressionCategory(StrEnum):
    """The mechanism behind a regression."""

    DATALOADER = "dataloader"
    TOKENIZATION = "tokenization"
    COMMUNICATION = "communication"
    MEMORY = "memory"
    KERNEL = "kernel"
    IO = "io"
    DATA = "data"
    OBJECTIVE = "objective"
    NUMERICS = "numerics"
    OPTIMIZER = "optimizer"
    ADAPTER = "adapter"
    ROLLOUT = "rollout"
    HOST = "host"
    CONFIG = "config"
    ENVIRONMENT = "environment"
    UNKNOWN = "unknown"


EvidenceKind = Literal[
    "first difference", "signal", "phase", "operators", "code", "environment", "config", "git"
]
"""In the order in which evidence is shown."""

Shown = float | int | str | None


def simple(value: object) -> Shown:
    """Return a value as evidence and checks hold it."""
    return value if isinstance(value, float | int | str | None) else str(value)


@dataclass(frozen=True)
class Evidence:
    """One fact that supports a suspect."""

    kind: EvidenceKind
    message: str
    """The fact in words, with its numbers and units."""
    baseline: Shown = None
    current: Shown = None
    unit: str = ""
    path: str = ""
    """The file in the repository that it names."""
    line: int | None = None

    def __str__(self) -> str:
        """Return the message, because scripts print evidence as it is."""
        return self.message


@dataclass(frozen=True)
class Suspect:
    """A mechanism that may have caused the regression."""

    category: RegressionCategory
    confidence: float
    """Expected share of such suspects that are right, 0 to 1."""
    description: str
    """One sentence: what happened."""
    evidence: tuple[Evidence, ...] = ()
    suggested_actions: tuple[str, ...] = ()


@dataclass(frozen=True)
class Diagnosis:
    """Suspects, the likeliest first; empty if nothing got worse."""

    summary: str = ""
    """One line."""
    suspects: tuple[Suspect, ...] = ()

    @property
    def top_suspect(self) -> Suspect | None:
        """Return the likeliest suspect; None without suspects."""
        return self.suspects[0] if self.suspects else None
