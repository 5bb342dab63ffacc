"""A row of the corpus: what happened, where it is planted, and the class of its cause."""

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
    """One change of one training, and what should be said of it; a row is equal to itself alone.

    `base` names a training of bench/corpus/bases.py: a built-in canary, or a user's own script.
    `plant` runs once the trainer is built and sees it as `trainer`; `before` runs just before it is
    built. In a script `plant` stands before `trainer.train()`, and there is no `before`.
    """

    id: str
    incident: str
    base: str
    category: Category | None
    """The class of the cause; None for a change that is no fault."""
    also: Category | None = None
    """A second class that is as right, where the incident belongs to both; fixed before any run."""
    plant: str = ""
    before: str = ""
    config: Mapping[str, object] = field(default_factory=dict)
    """Keys of the config that differ."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables of the process that differ."""
    yaml: str | None = None
    """The whole config as text, instead of the base's values written out."""
    timed: bool = True
    """Whether time and peak memory are compared too."""
    paired: bool = False
    """Whether nothing but time or memory tells it, so that each side is launched several times, in
    turn with the other."""
