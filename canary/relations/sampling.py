"""What the training process measures of sampling, for the relations that judge it.

A *round* is what was sampled between two updates. Numbers stand for one round each.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Round:
    """Log-probabilities of the sampler and of the trainer, for the same sampled tokens."""

    update: int
    """The first update after the sampling, from 1."""
    source: str
    """What sampled, for people: `the trained model`, `another model of this process` ..."""
    tokens: int
    """Tokens compared."""
    mean: float
    """Mean absolute difference."""
    largest: float
    """Largest absolute difference."""
    allowed: float
    """How far a log-probability may differ, from measured rounding."""
    place: str
    """The first token beyond `allowed`, else empty."""
    values: tuple[float, float] | None
    """There: the sampler's and the trainer's log-probability."""
    temperatures: tuple[float, float] | None = None
    """The sampler's and the trainer's, where both are known."""
    prompts: str = ""
    """How the sampler's prompt differs from the trainer's; empty if equal."""
    in_training_mode: bool = False
    """Whether the sampler was in training mode."""
    penalised: bool = False
    """Whether the sampler's probabilities are no softmax of its logits."""
    trainer: str = "the trainer"
    """What the sampler is compared with, for people."""
    cut: bool = False
    """Whether the loss takes the probabilities after top-k or top-p as the old ones."""


@dataclass(frozen=True)
class Weights:
    """Weights of the engine and of the trainer, compared tensor by tensor."""

    update: int
    """The first update after the comparison, from 1."""
    source: str
    tensors: int
    """Tensors that both have."""
    differing: int
    first: str
    """The first tensor that differs; empty without one."""
    norms: tuple[float, float] | None
    """Of that tensor: the engine's and the trainer's; None if only hashes are known."""
    dtype: str = ""
    """The engine's dtype if it is another than the trainer's."""
    stale_by: int | None = None
    """The differing tensors equal those of this many updates before."""


@dataclass(frozen=True)
class Reward:
    """One reward function, asked again about the completions of its first call."""

    name: str
    rows: int
    changed: str
    """The way to ask that changed a reward, for people; empty if none did."""
    place: str = ""
    values: tuple[float, float] | None = None
    """The reward in the training, and the changed one."""
    cause: str = ""
    """What the reward depends on."""
    unasked: str = ""
    """Why it could not be asked; empty if it was."""


@dataclass
class Sampling:
    """What was seen of sampling in a training."""

    rounds: list[Round] = field(default_factory=list)
    weights: list[Weights] = field(default_factory=list)
    rewards: list[Reward] = field(default_factory=list)
    sampled: int = 0
    """Sequences that were seen as they were sampled."""
    expected: bool = False
    """Whether the trainer samples, or the loop reports that it does."""
    failed: str = ""
    """Why a comparison was not possible; empty if all were."""
