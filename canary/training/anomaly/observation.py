"""What detectors are shown of a training step: numbers on the host, nothing that trains. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from canary.record.jsonio import number
from canary.record.metric_names import QUANTITIES
from canary.record.slowing import own_seconds, tokens_of

if TYPE_CHECKING:
    from canary.record.step_row import Row


@dataclass(frozen=True)
class Sample:
    """A step's rewards: mean, standard deviation and number."""

    mean: float
    std: float | None = None
    count: int = 1


@dataclass(frozen=True)
class Agreement:
    """A step's predictions of rewards against the rewards, in the rewards' unit."""

    error: float
    """Mean absolute error."""
    centred_error: float
    """The same after each side's mean was taken off: what no common shift explains."""
    centred_std: float
    """Standard deviation of those centred errors."""
    square: float
    """Mean square of the rewards: their scale."""
    count: int


@dataclass(frozen=True)
class Observation:
    """One optimizer step. What is not known is None or empty; a detector then keeps silent."""

    step: int
    loss: float | None = None
    """Raw, as computed."""
    micro_losses: tuple[float, ...] = ()
    grad_norm: float | None = None
    """Of all gradients before clipping."""
    learning_rates: tuple[float, ...] = ()
    """One a parameter group."""
    peak_rates: tuple[float | None, ...] = ()
    """Each group's rate where its scheduler is at its highest; None without a scheduler."""
    batch_size: int | None = None
    """Samples of the whole step."""
    wall_s: float | None = None
    own_s: float | None = None
    """Seconds of the step that are the training's own (`canary.record.slowing`)."""
    tokens: float | None = None
    """Tokens of the step."""
    rewards: Sample | None = None
    agreement: Agreement | None = None
    kl: float | None = None
    entropy: float | None = None
    clip_fraction: float | None = None
    length: float | None = None
    """Mean length of completions in tokens."""
    value_loss: float | None = None
    """Mean a token of half the squared error of the values."""
    explained_variance: float | None = None
    """1 - Var(returns - values) / Var(returns), over the tokens of the step."""
    surrogate: bool = False
    """`loss` holds a policy's surrogate, which cancels to 0: its level says nothing."""
    kl_of_sequence: bool = False
    """`kl` is summed over a completion, and not a token's mean."""
    no_signal: bool = False
    """Every group has one reward for all its completions: there is nothing to learn from."""
    never_changed: tuple[str, ...] = ()
    """Trainable tensors that are, after many updates, what they were at the first."""
    updates: int = 0
    """How many updates those tensors were given."""
    batch_hash: Callable[[], Any] | None = None
    """Hashes of the step's micro-batches, computed when called."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Everything else by name, for detectors of one's own."""


def _of_sequence(metrics: Mapping[str, Any]) -> bool:
    """Whether the KL is that of whole completions: of trl's PPO, and of KTO, which logs what it
    prefers beside it."""
    kl = QUANTITIES["kl"]
    return kl.name_in(metrics) in kl.of_sequence or _has("chosen_logprob", metrics)


def _has(quantity: str, metrics: Mapping[str, Any]) -> bool:
    return any(name in metrics for name in QUANTITIES[quantity].names)


def from_metrics(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of an Observation in what trainers log of a step."""
    found: dict[str, Any] = {q.name: q.value_in(metrics) for q in QUANTITIES.values() if q.observed}
    reward, spread, groups_without = (
        QUANTITIES[name].value_in(metrics)
        for name in ("reward", "reward_std", "groups_without_spread")
    )
    found |= {
        "kl_of_sequence": _of_sequence(metrics),
        "surrogate": _has("policy_loss", metrics),
        "no_signal": groups_without == 1.0 or spread == 0.0,
        "metrics": metrics,
    }
    if reward is not None:
        found["rewards"] = Sample(reward, spread)
    return found


def from_row(row: Row, **more: Any) -> Observation:
    """The observation of a row."""
    rate, loss, norm = (
        None if row.get(key) is None else float(number(row[key]))
        for key in ("learning_rate", "loss", "grad_norm")
    )
    fields = from_metrics(row.get("rl") or {}) | {
        "step": int(row["step"]),
        "loss": loss,
        "micro_losses": tuple(float(number(value)) for value in row.get("micro_losses") or ()),
        "grad_norm": norm,
        "learning_rates": () if rate is None else (rate,),
        "batch_size": row.get("samples") or None,
        "wall_s": row.get("wall_s"),
        "own_s": own_seconds(row),
        "tokens": tokens_of(row),
    }
    return Observation(**fields | more)
