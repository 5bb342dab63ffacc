"""Rules of single trainers: what they refuse in a config, and properties of their losses. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from canary.config.schema import CanaryConfig

Arguments = Mapping[str, Any]
"""A config's `trainer_args`."""
Refusal = tuple[str, str, str]
"""Key, message and remedy."""


def ppo_refuses(config: CanaryConfig) -> Iterator[Refusal]:
    """Refuse two sources of the score, and adaptation of a KL weight of 0."""
    assert config.ppo is not None
    if config.ppo.reward_model and config.reward_functions:
        message = "and reward_functions exclude each other: both compute the score"
        yield "ppo.reward_model", message, "remove one of the two"
    if config.ppo.adap_kl_ctrl and config.ppo.init_kl_coef == 0:
        message = "is 0 and would stay 0, because ppo.adap_kl_ctrl multiplies it"
        yield "ppo.init_kl_coef", message, "set it above 0, or switch ppo.adap_kl_ctrl off"


def kto_refuses(config: CanaryConfig) -> Iterator[Refusal]:
    """Refuse micro-batches of one row, unless the loss estimates no KL."""
    loss = config.trainer_args.get("loss_type", "kto")
    if config.batch_size == 1 and loss != "apo_zero_unpaired":
        message = "is 1, but KTO estimates its KL term from the other rows of a micro-batch"
        yield "batch_size", message, "set it to 2 or more"


def dpo_bound(arguments: Arguments) -> str:
    """DPO: the losses that can be added to it are means over tokens."""
    bound = "sft" in (arguments.get("loss_type") or ()) or "rpo_alpha" in arguments
    return "that loss is a mean over the tokens of a micro-batch" if bound else ""


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
    sigmoid = arguments.get("loss_type", "sigmoid") in ("sigmoid", ["sigmoid"], None)
    known = sigmoid and not arguments.get("label_smoothing", 0)
    return "" if known else "for the sigmoid loss without label smoothing"


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
