"""The training arguments that all trainers share, each set explicitly.

Defaults of trl and transformers changed between versions: `bf16` and `gradient_checkpointing`
became True, `report_to` changed. So nothing that matters is left to them.
"""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from canary.config.trainers import OWN_KEYS
from canary.errors import ConfigError, did_you_mean, nearest
from canary.training import adapt
from canary.training.trainers import speed

if TYPE_CHECKING:
    from transformers import TrainingArguments

    from canary.config.schema import CanaryConfig
    from canary.protocol.spec import WorkloadSpec

Arguments = TypeVar("Arguments", bound="TrainingArguments")

PPO_ARGUMENTS = "PPOArguments"
"""The canary's arguments class for PPO; users do not know its name."""
# Fields of the config set these, so that two places cannot disagree.
_SET_BY_FIELD = {**OWN_KEYS, "trust_remote_code": "trust_remote_code"}


def training_arguments(
    spec: WorkloadSpec, config_class: type[Arguments], **trainer_specific: Any
) -> Arguments:
    """Return `config_class` filled from the canary's config, `trainer_specific` and trainer_args.

    bfloat16 and float16 are autocast over float32 master weights; float32 has no autocast.
    Raises ConfigError with the trainer_arg's key: unknown to the class, refused by it, or set by a
    field of the config.
    """
    config = spec.config
    _check_trainer_args(config.trainer_args, config_class)
    _check_trackers(config.report_to)
    switched = speed.arguments(config, uses_cuda(config))
    wanted = _common(spec) | switched | trainer_specific | dict(config.trainer_args)
    if "generation_kwargs" in trainer_specific:
        given = config.trainer_args.get("generation_kwargs") or {}
        wanted["generation_kwargs"] = {**given, **trainer_specific["generation_kwargs"]}
    settings = adapt.settings(config_class, wanted, spec.notes)
    try:
        return config_class(**settings)
    except (TypeError, ValueError, AttributeError) as error:
        raise _refused(config, config_class, error) from error


def uses_cuda(config: CanaryConfig) -> bool:
    """Return whether the canary trains on a GPU. ConfigError if `device` asks for a missing GPU."""
    if config.device == "cpu":
        return False
    if torch.cuda.is_available():
        return True
    if config.device == "auto":
        return False
    raise ConfigError(
        f"device is '{config.device}', but torch sees no GPU",
        "set device: auto or cpu, or check the driver with nvidia-smi",
        key="device",
    )


def _common(spec: WorkloadSpec) -> dict[str, Any]:
    config = spec.config
    cuda = uses_cuda(config)
    if config.dtype == "float16" and not cuda:
        raise ConfigError(
            "dtype float16 needs a GPU", "set dtype: float32 or bfloat16", key="dtype"
        )
    return {
        "output_dir": str(spec.scratch_dir / "trainer"),
        "max_steps": spec.max_steps,
        "per_device_train_batch_size": config.batch_size,
        "gradient_accumulation_steps": config.gradient_accumulation_steps,
        **({} if config.learning_rate is None else {"learning_rate": config.learning_rate}),
        "warmup_steps": config.warmup_steps,
        "lr_scheduler_type": "linear",
        "optim": "adamw_torch",
        "weight_decay": 0.0,
        "max_grad_norm": 1.0,
        "bf16": config.dtype == "bfloat16",
        "fp16": config.dtype == "float16",
        "use_cpu": not cuda,
        "activation_checkpointing": False,
        "seed": config.seed,
        "data_seed": config.seed,
        "dataloader_num_workers": config.num_workers,
        "dataloader_pin_memory": cuda,
        "report_to": list(config.report_to) or "none",
        "logging_strategy": "steps",
        "logging_steps": spec.logging_steps,
        "logging_first_step": True,
        "logging_nan_inf_filter": False,
        "save_strategy": "no",
        "eval_strategy": "no",
        "disable_tqdm": True,
        "push_to_hub": False,
    }


def _check_trackers(names: tuple[str, ...]) -> None:
    from transformers.integrations import integration_utils

    known = sorted(integration_utils.INTEGRATION_TO_CALLBACK)
    installed = integration_utils.get_available_reporting_integrations()
    for name in names:
        why = "is not installed"
        hint: str | None = f"install it beside the canary, or remove '{name}'"
        if name not in known:
            why = "transformers does not know"
            hint = did_you_mean(nearest(name, known), f"known: {', '.join(known)}")
        if name not in known or name not in installed:
            raise ConfigError(f"report_to names '{name}', which {why}", hint, key="report_to")


def _check_trainer_args(trainer_args: Any, config_class: type[Any]) -> None:
    known = adapt.field_names(config_class)
    for name in trainer_args:
        key = f"trainer_args.{name}"
        field = _SET_BY_FIELD.get(name) or _SET_BY_FIELD.get(adapt.newest_name(name))
        if field is not None:
            raise ConfigError(f"the config sets '{key}' itself", f"set '{field}' instead", key=key)
        if not adapt.understood(name, config_class):
            lacks, hint = f"{config_class.__name__} has no such argument", None
            if config_class.__name__ == PPO_ARGUMENTS:
                lacks = "neither PPO nor transformers' TrainingArguments has such an argument"
                hint = "PPO's keys go under ppo:"
            near = nearest(name, sorted(known))
            raise ConfigError(f"unknown key '{key}': {lacks}", did_you_mean(near, hint), key=key)
        if name == "resume_from_checkpoint":
            hint = "remove it: a canary always starts from the beginning"
            raise ConfigError(f"'{key}' is not allowed", hint, key=key)
    types = {field.name: field.type for field in dataclasses.fields(config_class)}
    for name, value in trainer_args.items():
        if (
            name in types
            and value is not None
            and not isinstance(value, int | float)
            and _is_numeric(types[name])
        ):
            raise ConfigError(
                f"trainer_args.{name} is {value!r}, but {config_class.__name__} takes a number",
                "write a number",
                key=f"trainer_args.{name}",
            )


def _is_numeric(annotation: Any) -> bool:
    """Whether a field's annotation allows only numbers (and None)."""
    names = set(re.findall(r"[A-Za-z_]+", str(annotation)))
    names -= {"Optional", "Union", "None", "NoneType", "typing", "class"}
    return bool(names) and names <= {"int", "float"}


def _refused(config: CanaryConfig, config_class: type[Any], error: Exception) -> ConfigError:
    """Return a ConfigError with the key of the trainer_arg that `error` mentions, if any."""
    text = " ".join(str(error).split())
    named = next((name for name in config.trainer_args if name in text), None)
    return ConfigError(
        f"{config_class.__name__} refuses these settings: {text}",
        f"check trainer_args.{named}" if named else None,
        key=f"trainer_args.{named}" if named else None,
    )
