"""A training step as detectors see it: numbers on the host, no tensors. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from canary.record.jsonio import number
from canary.record.metric_names import QUANTITIES

if TYPE_CHECKING:
    from canary.record.step_row import Row


@dataclass(frozen=True)
class Sample:
    """The rewards of one step: mean, standard deviation and count."""

    mean: float
    std: float | None = None
    count: int = 1


@dataclass(frozen=True)
class Agreement:
    """The errors of one step's reward predictions, in the unit of the rewards."""

    error: float
    """Mean absolute error."""
    centred_error: float
    """The mean absolute error without the common shift: after subtracting the mean error."""
    centred_std: float
    """Standard deviation of those centred absolute errors."""
    square: float
    """Mean square of the rewards, which gives their scale."""
    count: int


@dataclass(frozen=True)
class Observation:
    """One optimizer step. Unknown values are None or empty; detectors skip them."""

    step: int
    loss: float | None = None
    """The raw loss, before any filter."""
    grad_norm: float | None = None
    """Norm of all gradients before clipping."""
    learning_rates: tuple[float, ...] = ()
    """One per parameter group."""
    peak_rates: tuple[float | None, ...] = ()
    """The highest rate of each group's scheduler; None without a scheduler."""
    batch_size: int | None = None
    """Samples of the whole step."""
    wall_s: float | None = None
    rewards: Sample | None = None
    agreement: Agreement | None = None
    kl: float | None = None
    entropy: float | None = None
    clip_fraction: float | None = None
    surrogate: bool = False
    """`loss` is a policy's surrogate loss, which cancels to 0: its level means nothing."""
    kl_of_sequence: bool = False
    """`kl` is summed over a completion instead of averaged per token."""
    no_signal: bool = False
    """In every group all completions have the same reward: there is nothing to learn from."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """All other metrics by name, for users' detectors."""


def from_metrics(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of an Observation found in the metrics of a trainer."""
    found: dict[str, Any] = {q.name: q.value_in(metrics) for q in QUANTITIES.values() if q.observed}
    reward, spread, groups_without = (
        QUANTITIES[name].value_in(metrics)
        for name in ("reward", "reward_std", "groups_without_spread")
    )
    kl = QUANTITIES["kl"]
    of_policy, of_chosen = (
        any(name in metrics for name in QUANTITIES[quantity].names)
        for quantity in ("policy_loss", "chosen_logprob")
    )
    found |= {
        # In trl's PPO, and in KTO, recognised by its log-probability of chosen completions.
        "kl_of_sequence": kl.name_in(metrics) in kl.of_sequence or of_chosen,
        "surrogate": of_policy,
        "no_signal": groups_without == 1.0 or spread == 0.0,
        "metrics": metrics,
    }
    if reward is not None:
        found["rewards"] = Sample(reward, spread)
    return found


def from_row(row: Row) -> Observation:
    """Return the observation of a row."""
    rate, loss, norm = (
        None if row.get(key) is None else float(number(row[key]))
        for key in ("learning_rate", "loss", "grad_norm")
    )
    fields = from_metrics(row.get("rl") or {}) | {
        "step": int(row["step"]),
        "loss": loss,
        "grad_norm": norm,
        "learning_rates": () if rate is None else (rate,),
        "batch_size": row.get("samples") or None,
        "wall_s": None if row.get("look") else row.get("wall_s"),
    }
    return Observation(**fields)
