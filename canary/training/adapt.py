"""All differences between versions of trl and transformers: names, modules, values.

A trainer's module uses the newest names:

    config_class, trainer_class = adapt.offered("DPO")
    arguments = training_arguments(spec, config_class, max_length=..., loss_type=["sigmoid"])
    trainer = adapt.build(trainer_class, model=..., args=arguments, processing_class=tokenizer)

`training_arguments` passes its settings through `settings` below. A setting that the installed
version cannot apply becomes a line in `spec.notes`, for the record and the terminal.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import json
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
"""Names in the newest versions, and their older names. The values are the same."""

ONLY_BEHAVIOUR: Mapping[str, tuple[Any, ...]] = {
    "loss_type": ("nll",),
    "trust_remote_code": (False, True),  # the canary loads models and tokenizers itself
}
"""Values that equal the behaviour of versions without the setting: they need no note."""

KNOWN_ARGUMENTS = Path(__file__).with_name("known_arguments.json")
"""Arguments of each config class in any tested version; see bench/stacks_arguments.py."""


def installed(package: str) -> Version:
    """Return the installed version of a package of the training stack."""
    return Version(metadata.version(package))


def offered(stem: str, takes: str = "model") -> tuple[type[Any], type[Any]]:
    """Return `<stem>Config` and `<stem>Trainer` from trl or `trl.experimental.<stem>`.

    A trainer without the parameter `takes` does not count: it is a stub that says where the class
    moved, or an older trainer of the same name.

    Raises:
        ConfigError: neither module has the pair.
    """
    for package in ("trl", f"trl.experimental.{stem.lower()}"):
        try:
            module = importlib.import_module(package)
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


def parameters(callable_: Any) -> frozenset[str]:
    """Return the parameters that `callable_` takes by name."""
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    found = inspect.signature(callable_).parameters.values()
    return frozenset(parameter.name for parameter in found if parameter.kind in kinds)


def understood(name: str, config_class: type[Any]) -> bool:
    """Whether `name` is an argument of `config_class` in this or another version."""
    known = field_names(config_class) | known_arguments(config_class.__name__)
    return _name_here(name, known) is not None


@functools.cache
def known_arguments(class_name: str) -> frozenset[str]:
    """Return a config class's arguments in any tested version; for a user's class, those that every
    config class has."""
    lists = json.loads(KNOWN_ARGUMENTS.read_text(encoding="utf-8"))
    return frozenset((*lists["every"], *lists.get(class_name, ())))


def newest_name(name: str) -> str:
    """Return a setting's name in the newest versions."""
    newer = {old: new for new, old in (*OTHER_NAMES.items(), ("use_cpu", "no_cuda"))}
    return newer.get(name, name)


def field_names(config_class: type[Any]) -> frozenset[str]:
    """Return the arguments that a config class takes."""
    return frozenset(field.name for field in dataclasses.fields(config_class) if field.init)


def settings(
    config_class: type[Any], wanted: Mapping[str, Any], notes: list[str]
) -> dict[str, Any]:
    """Return `wanted`, given by the newest names, as arguments of the installed `config_class`.

    Adds a line to `notes` for each setting that the class does not have.
    """
    known = field_names(config_class)
    found: dict[str, Any] = {}
    if "max_prompt_length" in known:
        # Older trainers truncate prompts: the canary already did. CPO wants it below max_length.
        longest = wanted.get("max_length")
        found["max_prompt_length"] = longest and longest - 1
    for name, value in wanted.items():
        here = _name_here(name, known)
        if here is not None:
            found[here] = _value_for(config_class, here, value)
            continue
        if name == "warmup_ratio" and "warmup_steps" in known and 0 <= value < 1:
            found["warmup_steps"] = value  # transformers 5 reads a fraction as a ratio
        elif value not in ONLY_BEHAVIOUR.get(newest_name(name), ()):
            notes.append(
                f"{name} {value!r} is ignored: {config_class.__name__} of trl {installed('trl')} "
                f"with transformers {installed('transformers')} has no such setting"
            )
    return found


def _name_here(name: str, known: frozenset[str]) -> str | None:
    """Return the installed version's name of a setting, given by any version's name. Prefers the
    newest name if the class has both."""
    newest = newest_name(name)
    return next((here for here in (newest, OTHER_NAMES.get(newest)) if here in known), None)


def _value_for(config_class: type[Any], name: str, value: Any) -> Any:
    """Return a loss type as a list of names if the class takes lists, else as one name."""
    if name != "loss_type" or value is None:
        return value
    annotation = next(f.type for f in dataclasses.fields(config_class) if f.name == name)
    takes_list = "list" in str(annotation).lower()
    if takes_list and isinstance(value, str):
        return [value]
    if not takes_list and isinstance(value, list) and len(value) == 1:
        return value[0]
    return value


def build(trainer_class: type[Any], **wanted: Any) -> Any:
    """Return the trainer. Leaves out a parameter that is None and unknown to the class.

    Raises:
        ConfigError: the class does not take a parameter that has a value.
    """
    known = parameters(trainer_class)
    passed: dict[str, Any] = {}
    for name, value in wanted.items():
        if name in known:
            passed[name] = value
        elif value is not None:
            raise ConfigError(
                f"{trainer_class.__name__} of trl {installed('trl')} does not take '{name}'",
                "leave the setting out, or install another trl",
            )
    return trainer_class(**passed)


def checkpoint_activations(model: Any, arguments: Any) -> None:
    """Enable activation checkpointing if the arguments ask for it, in loops that skip it."""
    for kind in ("activation", "gradient"):
        if getattr(arguments, f"{kind}_checkpointing", False):
            given = getattr(arguments, f"{kind}_checkpointing_kwargs", None) or {}
            getattr(model, f"{kind}_checkpointing_enable")({"use_reentrant": False} | given)
            return


def reward_rows(rows: Dataset, config_class: type[Any], notes: list[str]) -> Dataset:
    """Return preference pairs as the installed RewardTrainer reads them.

    Older versions read only `chosen` and `rejected`, so both must contain the prompt. They log
    only the loss.
    """
    if "pad_token" in field_names(config_class):
        return rows
    notes.append(
        f"RewardTrainer of trl {installed('trl')} logs no accuracy, margin or reward in training"
    )
    if "prompt" not in rows.column_names:
        return rows

    def with_prompt(row: dict[str, Any]) -> dict[str, Any]:
        return {side: row["prompt"] + row[side] for side in ("chosen", "rejected")}

    return rows.map(with_prompt, remove_columns=["prompt"])


def dtype_option(dtype: torch.dtype) -> dict[str, torch.dtype]:
    """Return the argument of `from_pretrained` for the dtype of the weights."""
    return {"dtype" if installed("transformers") >= Version("4.56") else "torch_dtype": dtype}
