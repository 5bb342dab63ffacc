"""A row of the corpus: the incident, its code, and the category of its cause."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Category = Literal[
    "dataloader",
    "tokenization",
    "communication",
    "memory",
    "kernel",
    "io",
    "data",
    "objective",
    "numerics",
    "optimizer",
    "adapter",
    "rollout",
    "host",
    "config",
    "environment",
]


@dataclass(frozen=True, eq=False)
class Row:
    """One change of a training and the expected diagnosis. A row is only equal to itself.

    `base` names a training of bench/corpus/bases.py: a built-in canary or a user's script. `plant`
    runs after the trainer is built, with it as `trainer`; `before` runs just before. In a script
    `plant` comes before `trainer.train()`, and `before` is not used.
    """

    id: str
    incident: str
    base: str
    category: Category | None
    """The category of the cause; None for a harmless change."""
    also: Category | None = None
    """A second correct category, if the incident belongs to both; fixed before any run."""
    plant: str = ""
    before: str = ""
    config: Mapping[str, object] = field(default_factory=dict)
    """Config keys that differ."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Environment variables that differ."""
    yaml: str | None = None
    """The whole config as text, in place of the base's values."""
    timed: bool = True
    """Whether time and peak memory are compared too."""
    paired: bool = False
    """Whether only time or memory shows the change; each side then runs several times, in turn."""
