"""The one place that knows how trl's and transformers' versions differ: names, places, values.

A trainer's file asks for what it wants by the newest names:

    config_class, trainer_class = adapt.offered("DPO")
    arguments = training_arguments(spec, config_class, max_length=..., loss_type=["sigmoid"])
    trainer = adapt.build(trainer_class, model=..., args=arguments, processing_class=tokenizer)

`training_arguments` passes its settings through `settings` below. What the installed version cannot
honour becomes a line in `spec.notes`, which ends up in the record and on the terminal.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import json
import math
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from packaging.version import Version

from canary.errors import ConfigError

if TYPE_CHECKING:
    from datasets import Dataset

OTHER_NAMES = {
    "max_length": "max_seq_length",
    "eval_strategy": "evaluation_strategy",
    "activation_checkpointing": "gradient_checkpointing",
    "activation_checkpointing_kwargs": "gradient_checkpointing_kwargs",
}
"""Names of the newest versions, and what they were called before, with the same values."""

ONLY_BEHAVIOUR: Mapping[str, tuple[Any, ...]] = {
    "loss_type": ("nll",),
    "trust_remote_code": (False, True),  # the canary loads models and tokenizers itself
}
"""Values that a version without the setting has by nature: nothing to be said about them."""

KNOWN_ARGUMENTS = Path(__file__).with_name("known_arguments.json")
"""Arguments that a config class has in some tested version; see bench/stacks_arguments.py."""


def installed(package: str) -> Version:
    """The installed version of a package of the training stack."""
    return Version(metadata.version(package))


def offered(stem: str, takes: str = "model") -> tuple[type[Any], type[Any]]:
    """`<stem>Config` and `<stem>Trainer`, from trl or from `trl.experimental.<stem>`.

    A class that is there and does not take the parameter `takes` is not it: a stub that only says
    where the class went, or an older trainer of the same name. Raises ConfigError where neither
    place has the pair.
    """
    for place in ("trl", f"trl.experimental.{stem.lower()}"):
        try:
            module = importlib.import_module(place)
            config: type[Any] = getattr(module, f"{stem}Config")
            trainer: type[Any] = getattr(module, f"{stem}Trainer")
        except (ImportError, AttributeError):
            continue
        if takes in parameters(trainer) and dataclasses.is_dataclass(config):
            return config, trainer
    raise ConfigError(
        f"training_type '{stem.lower()}' is not offered by trl {installed('trl')}",
        "install another trl, or choose another trainer",
        key="training_type",
    )


def trainer_class(name: str, takes: str = "model") -> type[Any]:
    """The class that `name` ('KTOTrainer') means in the installed trl; ConfigError without one."""
    return offered(name.removesuffix("Trainer"), takes)[1]


def parameters(callable_: Any) -> frozenset[str]:
    """Names of the parameters that calling `callable_` takes by name."""
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    found = inspect.signature(callable_).parameters.values()
    return frozenset(parameter.name for parameter in found if parameter.kind in kinds)


def understood(name: str, config_class: type[Any]) -> bool:
    """Whether `name` is an argument of `config_class`, here or in another version."""
    known = field_names(config_class) | known_arguments(config_class.__name__)
    return _name_here(name, known) is not None


@functools.cache
def known_arguments(class_name: str) -> frozenset[str]:
    """Arguments that a config class has in some tested version; of a class of the user's own, those
    that every class has."""
    lists = json.loads(KNOWN_ARGUMENTS.read_text(encoding="utf-8"))
    return frozenset((*lists["every"], *lists.get(class_name, ())))


def newest_name(name: str) -> str:
    """The newest versions' name of a setting."""
    newer = {old: new for new, old in (*OTHER_NAMES.items(), ("use_cpu", "no_cuda"))}
    return newer.get(name, name)


def field_names(config_class: type[Any]) -> frozenset[str]:
    """Names of the arguments that a config class takes."""
    return frozenset(field.name for field in dataclasses.fields(config_class) if field.init)


def settings(
    config_class: type[Any], wanted: Mapping[str, Any], notes: list[str]
) -> dict[str, Any]:
    """`wanted`, by the newest names, as arguments of `config_class` as it is installed.

    Adds a line to `notes` for each setting that the class cannot honour.
    """
    known = field_names(config_class)
    found = _older_defaults(known, wanted)
    for name, value in wanted.items():
        here = _name_here(name, known)
        if here is not None:
            found[here] = _value_for(config_class, here, value)
            continue
        translated = _translated(name, value, known)
        found.update(translated or {})
        if translated is None and value not in ONLY_BEHAVIOUR.get(newest_name(name), ()):
            notes.append(_not_honoured(config_class, name, value))
    return found


def _name_here(name: str, known: frozenset[str]) -> str | None:
    """The installed version's name of a setting, whichever version's name was given; the newest,
    where it has both."""
    newer = {old: new for new, old in OTHER_NAMES.items()}
    newest = newer.get(name, name)
    return next((here for here in (newest, OTHER_NAMES.get(newest)) if here in known), None)


def _older_defaults(known: frozenset[str], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Older trainers cut prompts to a length of their own; the canary has cut them already."""
    if "max_prompt_length" not in known:
        return {}
    longest = wanted.get("max_length")
    return {"max_prompt_length": longest and longest - 1}  # CPO wants it below max_length


def _translated(name: str, value: Any, known: frozenset[str]) -> dict[str, Any] | None:
    """A setting said with another argument of another meaning; None where there is none."""
    if name == "warmup_ratio" and "warmup_steps" in known and 0 <= value < 1:
        return {"warmup_steps": value}  # transformers 5 reads a fraction as a ratio
    return None


def _value_for(config_class: type[Any], name: str, value: Any) -> Any:
    """A loss as a list of names where the class takes lists, as one name where it does not."""
    if name != "loss_type" or value is None:
        return value
    annotation = next(f.type for f in dataclasses.fields(config_class) if f.name == name)
    takes_list = "list" in str(annotation).lower()
    if takes_list and isinstance(value, str):
        return [value]
    if not takes_list and isinstance(value, list) and len(value) == 1:
        return value[0]
    return value


def _not_honoured(config_class: type[Any], name: str, value: Any) -> str:
    return (
        f"{name} {value!r} is not honoured: {config_class.__name__} of trl {installed('trl')} "
        f"with transformers {installed('transformers')} has no such setting"
    )


def build(trainer_class: type[Any], **wanted: Any) -> Any:
    """The trainer.

    A parameter that is None and unknown to the class is left out. Raises ConfigError for one that
    has a value: training without it would be another training.
    """
    known = parameters(trainer_class)
    passed: dict[str, Any] = {}
    for name, value in wanted.items():
        if name in known:
            passed[name] = value
        elif value is not None:
            raise ConfigError(
                f"{trainer_class.__name__} of trl {installed('trl')} takes no '{name}'",
                "leave the setting out, or install another trl",
            )
    return trainer_class(**passed)


def count_steps(state: Any, arguments: Any) -> None:
    """Tells a TrainerState how often to log, evaluate and save; fractions are of all steps."""
    for name in ("logging_steps", "eval_steps", "save_steps"):
        given = getattr(arguments, name)
        if given is not None:
            of_all = math.ceil(arguments.max_steps * given) if given < 1 else int(given)
            setattr(state, name, of_all)


def checkpoint_activations(model: Any, arguments: Any) -> None:
    """Has activations recomputed in the backward where the arguments ask for it: for a loop that is
    not transformers' own."""
    for kind in ("activation", "gradient"):
        if getattr(arguments, f"{kind}_checkpointing", False):
            own = getattr(arguments, f"{kind}_checkpointing_kwargs", None) or {}
            getattr(model, f"{kind}_checkpointing_enable")({"use_reentrant": False} | own)
            return


def reward_rows(rows: Dataset, config_class: type[Any], notes: list[str]) -> Dataset:
    """Preference pairs as the installed RewardTrainer reads them.

    Older ones read `chosen` and `rejected` alone, so that the prompt has to be part of both, and
    log nothing but the loss.
    """
    if "pad_token" in field_names(config_class):
        return rows
    notes.append(
        f"RewardTrainer of trl {installed('trl')} logs no accuracy, margin or reward in training"
    )
    if "prompt" not in rows.column_names:
        return rows
    return rows.map(_with_prompt, remove_columns=["prompt"])


def _with_prompt(row: dict[str, Any]) -> dict[str, Any]:
    return {side: row["prompt"] + row[side] for side in ("chosen", "rejected")}


def dtype_option(dtype: torch.dtype) -> dict[str, torch.dtype]:
    """The argument of `from_pretrained` for the dtype of the weights."""
    return {"dtype" if installed("transformers") >= Version("4.56") else "torch_dtype": dtype}
