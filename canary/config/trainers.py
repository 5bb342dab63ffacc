"""Trainers, one row each. The program knows a trainer only by its row.

To add one, add its row to `TRAINERS`. Trainers of trl share a `builder`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from canary.config import trainer_rules
from canary.config.trainer_rules import Arguments, FirstLoss, Refusal

if TYPE_CHECKING:
    from canary.config.schema import CanaryConfig

_SHARED = {
    "speed.optimizer",
    "speed.prefetch",
    "speed.pin_memory",
    "speed.compile",
    "speed.liger",
    "callbacks",
}
_ON_ROWS = frozenset({*_SHARED, "max_length", "data_collator"})
_ONLINE = frozenset(
    {
        *_SHARED,
        "max_prompt_length",
        "max_new_tokens",
        "temperature",
        "fixed_length",
        "reward_functions",
        "speed.kv_cache",
        "speed.decode",
    }
)
_IN_GROUPS = _ONLINE | {"num_generations", "beta"}
_PREFERENCES = _ON_ROWS | {"max_prompt_length", "beta"}

_ONLINE_DEFAULTS = {"learning_rate": 1e-5, "max_new_tokens": 32, "temperature": 1.0}
_GROUP_DEFAULTS = {**_ONLINE_DEFAULTS, "num_generations": 4}


@dataclass(frozen=True, kw_only=True)
class TrainerRow:
    """One trainer. The default of each field claims nothing about the trainer."""

    title: str
    """Shown to people, and part of its class names: `<title>Trainer`, `<title>Config`."""
    builder: str = ""
    """The module whose `build(spec)` returns the trainer, not yet started."""
    takes: str = "model"
    """A parameter of its class. A class without it is a stub, or an older trainer."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of its `<title>Config` that a config does not set."""
    keeps_empty: bool = False
    """Whether it trains on a pair whose completion was truncated to nothing."""

    uses: frozenset[str] = frozenset()
    """Config keys that only some trainers use, and this one does."""
    defaults: Mapping[str, float] = field(default_factory=dict)
    """Defaults of config keys that are null."""
    refuses: Callable[[CanaryConfig], Iterable[Refusal]] = lambda config: ()
    """Returns the problems of its config."""
    bound_to_micro_batch: Callable[[Arguments], str] = lambda arguments: ""
    """Returns why these `trainer_args` make a row's loss depend on other rows; else empty."""

    rows: str = ""
    """The shape of its data, a key of `canary.inputs.row_shapes.SHAPES`."""
    classifies: bool = False
    """It trains a sequence classifier with one label, so tokens have no labels."""
    reference: bool = False
    """It compares the policy with a reference model."""
    no_dropout: bool = False
    """It switches dropout off, as trl's `disable_dropout` does."""
    own_loop: bool = False
    """The canary implements its loop, which makes several updates per step."""

    phases: Mapping[str, str] = field(default_factory=dict)
    """Methods that are timed -> the phase that gets their time."""
    metrics: tuple[str, ...] = ()
    """Metrics that the ladder compares; they are means over rows, however rows are batched."""
    advantages: Literal["", "scaled", "centred", "whitened"] = ""
    """Divided by the group's deviation, only centred in it, or whitened over a rollout's tokens."""
    first_loss: FirstLoss | None = None
    """The loss when policy and reference are equal, if it is known."""

    takes_rows: str = ""
    """The columns of its data, for the docs."""
    recorded: str = ""
    """Signals recorded beside losses and gradients, for the docs."""

    @property
    def online(self) -> bool:
        """Whether it generates its training data."""
        return "max_new_tokens" in self.uses

    @property
    def in_groups(self) -> bool:
        """Whether it compares the completions of one prompt with each other."""
        return "num_generations" in self.uses


_TRL = "canary.training.trainers.building"
_preferences = functools.partial(
    TrainerRow,
    no_dropout=True,
    metrics=(
        "rewards/chosen",
        "rewards/rejected",
        "rewards/margins",
        "logps/chosen",
        "logps/rejected",
    ),
)
_pairs = functools.partial(_preferences, rows="pair", takes_rows="prompt, chosen, rejected")
_without_reference = functools.partial(
    _pairs,
    builder=_TRL,
    arguments={"remove_unused_columns": False},
    keeps_empty=True,
    uses=_PREFERENCES,
    bound_to_micro_batch=lambda _: "its likelihood is a mean over the tokens of a micro-batch",
    recorded="rewards, margins, accuracies, the parts of the loss",
)
_groups = functools.partial(
    TrainerRow,
    builder=_TRL,
    takes="reward_funcs",
    uses=_IN_GROUPS,
    rows="prompt",
    reference=True,
    phases={"_generate_single_turn": "generation", "_calculate_rewards": "reward"},
    metrics=("reward", "reward_std", "kl"),
    takes_rows="prompt and `answer`, or prompt with `reward_functions`",
    recorded=(
        "reward mean and std, KL, entropy, clip fraction, completion lengths, EOS rate; "
        "generation, reward and log-probability phases"
    ),
)

TRAINERS: dict[str, TrainerRow] = {
    "sft": TrainerRow(
        title="SFT",
        builder=_TRL,
        arguments={"packing": False, "loss_type": "nll", "dataset_text_field": "text"},
        uses=_ON_ROWS | {"speed.lengths"},
        defaults={"learning_rate": 5e-4, "max_length": 256},
        rows="completion",
        takes_rows="prompt and completion, messages, text",
        recorded="token accuracy, entropy",
    ),
    "dpo": _pairs(
        title="DPO",
        builder=_TRL,
        arguments={"loss_type": ["sigmoid"]},
        uses=_PREFERENCES | {"speed.lengths"},
        defaults={"learning_rate": 5e-5, "max_length": 256, "beta": 0.1},
        bound_to_micro_batch=trainer_rules.dpo_bound,
        reference=True,
        first_loss=trainer_rules.DPO_FIRST_LOSS,
        recorded="rewards and log-probabilities of both sides, margins, accuracies",
    ),
    "reward": TrainerRow(
        title="Reward",
        builder=_TRL,
        uses=_ON_ROWS | {"max_prompt_length", "speed.lengths"},
        defaults={"learning_rate": 1e-4, "max_length": 256},
        rows="scored pair",
        classifies=True,
        no_dropout=True,
        metrics=("margin", "mean_reward"),
        takes_rows="chosen, rejected, with or without prompt",
        recorded="margin, accuracy, smallest, mean and largest reward",
    ),
    "kto": _preferences(
        title="KTO",
        builder=_TRL,
        arguments={"loss_type": "kto"},
        uses=_PREFERENCES | {"speed.lengths"},
        defaults={"learning_rate": 5e-5, "max_length": 256, "beta": 0.1},
        refuses=trainer_rules.kto_refuses,
        bound_to_micro_batch=lambda _: "its KL is estimated from the rows of a micro-batch",
        rows="label",
        reference=True,
        first_loss=trainer_rules.KTO_FIRST_LOSS,
        takes_rows="prompt, completion, `label`; or pairs, which become two rows each",
        recorded="KL, rewards and log-probabilities of both sides, margins",
    ),
    "grpo": _groups(
        title="GRPO",
        defaults={**_GROUP_DEFAULTS, "beta": 0.04},
        advantages="scaled",
    ),
    "rloo": _groups(
        title="RLOO",
        defaults={**_GROUP_DEFAULTS, "beta": 0.05},
        advantages="centred",
    ),
    "ppo": TrainerRow(
        title="PPO",
        builder="canary.training.trainers.ppo.building",
        takes="value_model",
        uses=_ONLINE
        | {
            "ppo",
            "speed.advantages",
            "speed.logprobs",
            "speed.shared_forward",
            "speed.rollout_batch",
            "speed.lengths",
        },
        defaults=_ONLINE_DEFAULTS,
        refuses=trainer_rules.ppo_refuses,
        rows="scored prompt",
        reference=True,
        no_dropout=True,
        own_loop=True,
        metrics=(
            "policy_loss",
            "value_loss",
            "approx_kl",
            "reward",
            "reward_std",
            "kl",
            "kl_sequence",
            "entropy",
            "values_mean",
            "logprobs",
            "reference_logprobs",
        ),
        advantages="whitened",
        takes_rows="as `grpo`, or only prompt with `ppo.reward_model`",
        recorded=(
            "reward mean and std, KL and its weight, entropy, clip fractions, policy and value "
            "loss, values, completion lengths, EOS rate; generation, reward, log-probability and "
            "advantage phases"
        ),
    ),
    "orpo": _without_reference(
        title="ORPO",
        defaults={"learning_rate": 1e-4, "max_length": 256, "beta": 0.1},
    ),
    "cpo": _without_reference(
        title="CPO",
        defaults={"learning_rate": 5e-5, "max_length": 256, "beta": 0.1},
    ),
}
"""The built-in trainers by `training_type`, in the order of help and docs."""

DEFAULT_TRAINER = "dpo"
"""The default `training_type`."""

EXEC = TrainerRow(title="exec")
"""The user's command."""


def training_types() -> tuple[str, ...]:
    return (*TRAINERS, EXEC.title)


def trainer_row(training_type: object) -> TrainerRow:
    """Return the row of a trainer; for an unknown trainer a row that claims nothing."""
    return TRAINERS.get(str(training_type), EXEC)


def users_of(key: str) -> tuple[str, ...]:
    """Return the trainers that use a config key; empty if the key is for all trainers."""
    return tuple(name for name in training_types() if key in trainer_row(name).uses)


def by_value(key: str, *, reference: bool | None = None) -> str:
    """Return the defaults of a key, largest first: `SFT 5e-4; Reward, ORPO 1e-4`.

    `reference`: only trainers with (True) or without (False) a reference model.
    """
    titles: dict[float, list[str]] = {}
    for row in TRAINERS.values():
        if key in row.defaults and reference in (None, row.reference):
            titles.setdefault(row.defaults[key], []).append(row.title)
    return "; ".join(
        f"{', '.join(titles[value])} {_shown(value)}" for value in sorted(titles, reverse=True)
    )


def _shown(value: float) -> str:
    return f"{value:g}" if value >= 1e-3 else f"{value:.0e}".replace("e-0", "e-")


BUILT_IN_STEPS = 100
"""Default of `max_steps` for the built-in trainers."""

EXEC_KEYS = (
    "name",
    "description",
    "training_type",
    "command",
    "import",
    "max_steps",
    "device",
    "threads",
    "stop_on",
    "metrics_warmup_steps",
    "look_steps",
    "exact",
    "repeats",
    "timeout",
    "output_dir",
    "profiler",
    "thresholds",
    "metrics",
    "check",
)
"""Config keys that apply to the user's command."""

EXEC_DEFAULTS: dict[str, Any] = {"threads": None, "timeout": 7 * 86_400.0}
"""Defaults for a command: its choice of threads, and a week (in seconds)."""

IMPORT_DEFAULTS: dict[str, Any] = {"look_steps": 0}
"""Further defaults for a command whose record is made from what it leaves."""

LORA_DEFAULTS: dict[str, Any] = {"lora_r": 8, "lora_alpha": 16, "lora_dropout": 0.0}

OWN_KEYS: dict[str, str] = {
    "learning_rate": "learning_rate",
    "per_device_train_batch_size": "batch_size",
    "gradient_accumulation_steps": "gradient_accumulation_steps",
    "max_steps": "max_steps",
    "num_train_epochs": "max_steps",
    "warmup_steps": "warmup_steps",
    "seed": "seed",
    "data_seed": "seed",
    "output_dir": "output_dir",
    "beta": "beta",
    "max_length": "max_length",
    "max_prompt_length": "max_prompt_length",
    "max_completion_length": "max_new_tokens",
    "num_generations": "num_generations",
    "temperature": "temperature",
    "bf16": "dtype",
    "fp16": "dtype",
    "use_cpu": "device",
    "report_to": "report_to",
    "dataloader_num_workers": "num_workers",
}
"""Argument of a trainer -> the config key that sets it."""
