"""Rules of single trainers: what they refuse in a config, and properties of their losses. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from canary.config.schema import CanaryConfig

Arguments = Mapping[str, Any]
"""A config's `trainer_args`."""
Refusal = tuple[str, str, str]
"""Key, message and remedy."""


def refuses_nothing(config: CanaryConfig) -> Refusal | None:
    return None


def ppo_refuses(config: CanaryConfig) -> Refusal | None:
    """Refuse two sources of the score, and adaptation of a KL weight of 0."""
    assert config.ppo is not None
    if config.ppo.reward_model and config.reward_functions:
        return (
            "ppo.reward_model",
            "and reward_functions exclude each other: both compute the score",
            "remove one of the two",
        )
    if config.ppo.adap_kl_ctrl and config.ppo.init_kl_coef == 0:
        return (
            "ppo.init_kl_coef",
            "is 0 and would stay 0, because ppo.adap_kl_ctrl multiplies it",
            "set it above 0, or switch ppo.adap_kl_ctrl off",
        )
    return None


def kto_refuses(config: CanaryConfig) -> Refusal | None:
    """Refuse micro-batches of one row, unless the loss estimates no KL."""
    alone = config.batch_size == 1
    if not alone or config.trainer_args.get("loss_type", "kto") == "apo_zero_unpaired":
        return None
    return (
        "batch_size",
        "is 1, but KTO estimates its KL term from the other rows of a micro-batch",
        "set it to 2 or more",
    )


def bound_by_nothing(arguments: Arguments) -> str:
    """No dependence: a row's loss is the same in any micro-batch."""
    return ""


def dpo_bound(arguments: Arguments) -> str:
    """DPO: the losses that can be added to it are means over tokens."""
    bound = "sft" in (arguments.get("loss_type") or ()) or "rpo_alpha" in arguments
    return "that loss is a mean over the tokens of a micro-batch" if bound else ""


def estimates_kl(arguments: Arguments) -> str:
    """KTO."""
    return "its KL is estimated from the rows of a micro-batch"


def means_tokens(arguments: Arguments) -> str:
    """ORPO and CPO."""
    return "its likelihood is a mean over the tokens of a micro-batch"


def is_sigmoid(arguments: Arguments) -> bool:
    """DPO and reward models: a negative log-sigmoid."""
    sigmoid = arguments.get("loss_type", "sigmoid") in ("sigmoid", ["sigmoid"], None)
    return sigmoid and not arguments.get("label_smoothing", 0)


@dataclass(frozen=True)
class FirstLoss:
    """The loss when policy and reference are equal."""

    value: float
    words: str
    """The value in words."""
    unless: Callable[[Arguments], str]
    """Returns why `trainer_args` change the value; empty if they do not."""
    why: str = ""
    """Likely causes of another value."""


def _dpo_unless(arguments: Arguments) -> str:
    return "" if is_sigmoid(arguments) else "for the sigmoid loss without label smoothing"


def _kto_unless(arguments: Arguments) -> str:
    if any(arguments.get(f"{side}desirable_weight", 1) != 1 for side in ("", "un")):
        return "the sides are weighted"
    known = arguments.get("loss_type", "kto") in ("kto", "apo_zero_unpaired")
    return "" if known else "for the losses kto and apo_zero_unpaired"


DPO_FIRST_LOSS = FirstLoss(
    math.log(2.0),
    f"ln 2 is {math.log(2.0):.6f}",
    _dpo_unless,
    " (dropout left on, or two models)",
)
"""-log sigmoid(0) = ln 2 (Rafailov et al. 2023, eq. 7)."""
KTO_FIRST_LOSS = FirstLoss(0.5, "1/2 expected", _kto_unless)
"""1 - sigmoid(0) = 1/2 (Ethayarajh et al. 2024, eq. 8): implied rewards and KL baseline are 0."""
