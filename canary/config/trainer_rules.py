"""Rules of single trainers, for their rows: what they refuse of a config, and what holds for their
losses. Pure."""

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
    """Any config will do."""
    return None


def custom_refuses(config: CanaryConfig) -> Refusal | None:
    """Without a factory there is no trainer."""
    hint = "set trainer_factory: package.module:function"
    missing = config.trainer_factory is None
    return ("training_type", "custom has no trainer_factory", hint) if missing else None


def ppo_refuses(config: CanaryConfig) -> Refusal | None:
    """Two scores, and an adaptation of nothing."""
    assert config.ppo is not None
    if config.ppo.reward_model and config.reward_functions:
        return (
            "ppo.reward_model",
            "and reward_functions exclude each other: one of them gives the score",
            "remove one of the two",
        )
    if config.ppo.adap_kl_ctrl and config.ppo.init_kl_coef == 0:
        return (
            "ppo.init_kl_coef",
            "is 0, and ppo.adap_kl_ctrl multiplies it: it would stay 0",
            "set it above 0, or leave ppo.adap_kl_ctrl off",
        )
    return None


def kto_refuses(config: CanaryConfig) -> Refusal | None:
    """A row alone, unless the loss estimates no KL."""
    alone = config.batch_size == 1
    if not alone or config.trainer_args.get("loss_type", "kto") == "apo_zero_unpaired":
        return None
    return (
        "batch_size",
        "is 1, and KTO estimates its KL term from the other rows of a micro-batch",
        "set it to 2 or more",
    )


def bound_by_nothing(arguments: Arguments) -> str:
    """A row's loss is its own."""
    return ""


def dpo_bound(arguments: Arguments) -> str:
    """Losses beside DPO's own are means over tokens."""
    bound = "sft" in (arguments.get("loss_type") or ()) or "rpo_alpha" in arguments
    return "that loss has a mean over the tokens of a micro-batch" if bound else ""


def estimates_kl(arguments: Arguments) -> str:
    """KTO's."""
    return "its KL is estimated from the rows of a micro-batch"


def means_tokens(arguments: Arguments) -> str:
    """ORPO's and CPO's."""
    return "its likelihood is a mean over the tokens of a micro-batch"


def may_be_negative(arguments: Arguments) -> bool:
    """Nothing is known of the loss."""
    return False


def orpo_never_negative(arguments: Arguments) -> bool:
    """A log-likelihood less a log-sigmoid."""
    return True


def is_log_likelihood(arguments: Arguments) -> bool:
    """Of SFT."""
    return arguments.get("loss_type", "nll") in ("nll", None)


def is_sigmoid(arguments: Arguments) -> bool:
    """Of preferences: a log-likelihood too."""
    sigmoid = arguments.get("loss_type", "sigmoid") in ("sigmoid", ["sigmoid"], None)
    return sigmoid and not arguments.get("label_smoothing", 0)


def kto_never_negative(arguments: Arguments) -> bool:
    """Weighted values of a sigmoid."""
    return all(arguments.get(f"{side}desirable_weight", 1) >= 0 for side in ("", "un"))


def cpo_never_negative(arguments: Arguments) -> bool:
    """As ORPO, with the sigmoid loss."""
    return bool(arguments.get("loss_type", "sigmoid") == "sigmoid")


@dataclass(frozen=True)
class FirstLoss:
    """The loss of a policy that is its own reference."""

    value: float
    words: str
    """That value, as people write it."""
    unless: Callable[[Arguments], str]
    """Why `trainer_args` leave another value; empty where they do not."""
    why: str = ""
    """What may be behind another value."""


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
"""1 - sigmoid(0) = 1/2 (Ethayarajh et al. 2024, eq. 8): the implied rewards are 0 and so is their
KL baseline."""
