"""The quantities that trainers log about learning, with all their names and uses.

The live line, the detectors, comparisons and the ladder's guard read this table. Trackers get every
metric under the trainer's name for it. Two names of a quantity may have different scales, so a
quantity is compared only under the same name.
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
    """Name of its check and of its field in `canary.training.anomaly.observation.Observation`."""
    names: tuple[str, ...]
    """Its names in trainers: current trl, then older trl, its PPO and Online DPO, then verl."""
    label: str = ""
    """Its name in the live line; empty: not shown."""
    words: str = ""
    """Its name in a check's sentence; empty: `name`."""
    worse: Literal["", "higher", "lower"] = ""
    limit: str = ""
    """Key of its limit in `Thresholds`; empty: not compared. The key's last word is the scale:
    `ratio`, `std` of the baseline's steps, or `pct`."""
    unit: str = ""
    too_good: bool = False
    """Whether a rise far beyond the limit is suspicious too."""
    observed: bool = False
    """Whether detectors watch it under `name`."""
    rounded_away: bool = False
    """Whether it is a difference of two nearly equal log-probabilities. bfloat16 rounds it away,
    so the ladder's guard checks it only in float32."""
    of_sequence: tuple[str, ...] = ()
    """The names that sum over a completion; the others are means per token."""

    def name_in(self, metrics: Mapping[str, Any]) -> str | None:
        """Return the first of its names that has a value in `metrics`."""
        return next((name for name in self.names if metrics.get(name) is not None), None)

    def value_in(self, metrics: Mapping[str, Any]) -> float | None:
        """Return its value under that name."""
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
    ),
    Quantity("policy_loss", ("policy_loss", "loss/policy_avg", "actor/pg_loss"), "policy loss"),
    Quantity("value_loss", ("value_loss", "loss/value_avg", "critic/vf_loss"), "value loss"),
    Quantity("explained_variance", ("explained_variance", "critic/vf_explained_var")),
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
    # Only differences of a reward model's scores have a meaning, so their mean has no limit.
    Quantity("mean_score", ("mean_reward",)),
    Quantity("chosen_logprob", ("logps/chosen",)),
    Quantity("rejected_logprob", ("logps/rejected",)),
    Quantity("accuracy", ("rewards/accuracies", "accuracy", "mean_token_accuracy"), "accuracy"),
)
QUANTITIES = {quantity.name: quantity for quantity in _TABLE}
