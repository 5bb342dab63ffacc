"""What trainers log of how they learn: a row per quantity, with all its names and who reads it.

The live line, the detectors and the comparison read this table, and the ladder's guard. Trackers
are given every metric under its trainer's own name. Two names of one row may have two scales, so a
quantity is compared only under one name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from canary.record.jsonio import number


@dataclass(frozen=True)
class Quantity:
    """One quantity of training."""

    name: str
    """Of its check, and of its field in `canary.training.anomaly.observation.Observation`."""
    names: tuple[str, ...]
    """What trainers call it: trl of today, then older trl, its PPO and Online DPO, then verl."""
    label: str = ""
    """What the live line calls it; empty: not shown."""
    words: str = ""
    """What a check calls it; empty: its name."""
    worse: Literal["", "higher", "lower"] = ""
    limit: str = ""
    """Key of `Thresholds` that a check holds it to; empty: not compared. Its last word is the
    scale: `ratio`, `std` of the baseline's steps, or `pct`."""
    unit: str = ""
    too_good: bool = False
    """Whether a rise far beyond the limit is suspicious too."""
    observed: bool = False
    """Whether detectors watch it under `name`."""
    rounded_away: bool = False
    """Whether it is a difference of two nearly equal log-probabilities: bfloat16 leaves nothing of
    it, so it is guarded in float32 alone."""
    of_sequence: tuple[str, ...] = ()
    """Those of the names that sum over a completion, where the others are a token's mean."""

    def name_in(self, metrics: Mapping[str, Any]) -> str | None:
        """The first of its names that has a value there."""
        return next((name for name in self.names if metrics.get(name) is not None), None)

    def value_in(self, metrics: Mapping[str, Any]) -> float | None:
        """Its value under that name."""
        name = self.name_in(metrics)
        return None if name is None else float(number(metrics[name]))


_TABLE = (
    Quantity(
        "reward",
        ("reward", "objective/scores", "critic/score/mean"),
        "reward",
        worse="lower",
        limit="max_reward_drop_std",
        too_good=True,
    ),
    Quantity("reward_std", ("reward_std",)),
    Quantity("groups_without_spread", ("frac_reward_zero_std",)),
    Quantity(
        "kl",
        ("kl", "objective/kl", "actor/kl_loss", "actor/reward_kl_penalty"),
        "KL",
        "KL to the reference",
        worse="higher",
        limit="max_kl_ratio",
        unit="nats",
        observed=True,
        rounded_away=True,
        of_sequence=("objective/kl",),
    ),
    Quantity("kl_sequence", ("kl_sequence",), rounded_away=True),
    Quantity("approx_kl", ("approx_kl", "policy/approxkl_avg", "actor/ppo_kl"), rounded_away=True),
    Quantity(
        "entropy",
        ("entropy", "objective/entropy", "policy/entropy_avg", "actor/entropy"),
        "entropy",
        worse="lower",
        limit="max_entropy_drop_pct",
        observed=True,
    ),
    Quantity(
        "clip_fraction",
        ("clip_ratio/region_mean", "clip_ratio", "policy/clipfrac_avg", "actor/pg_clipfrac"),
        "clipped",
        observed=True,
    ),
    Quantity(
        "length",
        ("completions/mean_length", "completion_length", "response_length/mean"),
        observed=True,
    ),
    Quantity("policy_loss", ("policy_loss", "loss/policy_avg", "actor/pg_loss"), "policy loss"),
    Quantity(
        "value_loss",
        ("value_loss", "loss/value_avg", "critic/vf_loss"),
        "value loss",
        observed=True,
    ),
    Quantity(
        "explained_variance", ("explained_variance", "critic/vf_explained_var"), observed=True
    ),
    Quantity("values", ("values_mean",)),
    Quantity("logprobs", ("logprobs",)),
    Quantity("reference_logprobs", ("reference_logprobs",)),
    Quantity("chosen_reward", ("rewards/chosen",)),
    Quantity("rejected_reward", ("rewards/rejected",)),
    Quantity(
        "margin",
        ("rewards/margins", "margin"),
        "margin",
        worse="lower",
        limit="max_margin_drop_pct",
        too_good=True,
    ),
    # Of a reward model's scores only differences mean anything, so no limit holds their mean.
    Quantity("mean_score", ("mean_reward",)),
    Quantity("chosen_logprob", ("logps/chosen",)),
    Quantity("rejected_logprob", ("logps/rejected",)),
    Quantity("accuracy", ("rewards/accuracies", "accuracy", "mean_token_accuracy"), "accuracy"),
)
QUANTITIES = {quantity.name: quantity for quantity in _TABLE}
