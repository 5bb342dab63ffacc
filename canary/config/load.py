"""Load a config from files and settings, check it, and note where each value came from."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from canary.config.checks import check_together, check_used
from canary.config.metric_gates import HINTS as GATE_HINTS
from canary.config.metric_gates import check_keys, gate_key
from canary.config.schema import CanaryConfig, ProfilerConfig
from canary.config.sections import CheckConfig, ImportConfig, PPOConfig, SpeedConfig
from canary.config.source import Origins, apply_overrides, read_chain
from canary.config.spans import look_steps, warmup_steps
from canary.config.threshold_keys import ThresholdsConfig
from canary.config.trainers import (
    BUILT_IN_STEPS,
    EXEC_DEFAULTS,
    IMPORT_DEFAULTS,
    LORA_DEFAULTS,
    trainer_row,
    users_of,
)
from canary.errors import ConfigError, did_you_mean, nearest, replaced

BUILTIN = Path(__file__).parent / "builtin" / "dpo_smoke.yaml"
"""The config of `canary run` without an argument."""

DEFAULT = "default"
FROM_COMMAND = "from command"
"""Origin of a value that was derived from `command`."""
FROM_STEPS = "from max_steps"
"""Origin of a value that was derived from the number of steps."""

SECTIONS: dict[str, type[BaseModel]] = {
    "import": ImportConfig,
    "ppo": PPOConfig,
    "speed": SpeedConfig,
    "profiler": ProfilerConfig,
    "thresholds": ThresholdsConfig,
    "check": CheckConfig,
}


@dataclass(frozen=True)
class LoadedConfig:
    """A checked config, and where the value of each dotted key came from."""

    config: CanaryConfig
    origins: Origins
    source: Path | None

    @property
    def is_named(self) -> bool:
        """Whether a person chose the canary's name."""
        return self.origins["name"] not in (DEFAULT, FROM_COMMAND)


def load_config(path: Path | str | None, overrides: Sequence[str] = ()) -> LoadedConfig:
    """Load a config file (None: the embedded DPO smoke) and apply `--set` settings to it.

    Raises:
        ConfigError: one line that names file, key and remedy.
    """
    source = None if path is None else Path(path)
    values, origins = read_chain(source or BUILTIN)
    if source is None:
        origins = dict.fromkeys(origins, "built-in dpo_smoke")
    values, origins = apply_overrides(values, origins, overrides)
    return _checked(values, origins, source)


def load_values(
    path: Path | None, given: Mapping[str, tuple[Any, str]], overrides: Sequence[str] = ()
) -> LoadedConfig:
    """Load a config file or start empty, apply `--set` settings, then `{key: (value, origin)}`.

    Raises:
        ConfigError: one line that names file, key and remedy.
    """
    values, origins = ({}, {}) if path is None else read_chain(path)
    values, origins = apply_overrides(values, origins, overrides)
    for key, (value, place) in given.items():
        values[key], origins[key] = value, place
    return _checked(values, origins, path)


def _checked(values: dict[str, Any], origins: Origins, source: Path | None) -> LoadedConfig:
    if values.get("command") and "training_type" not in values:
        values, origins = (
            {**values, "training_type": "exec"},
            {**origins, "training_type": FROM_COMMAND},
        )
    name = str(source or "the built-in config")
    _refuse_unknown(values, "", CanaryConfig, origins, name, values.get("training_type"))
    check_keys(values.get("metrics"), origins, name)
    try:
        given = CanaryConfig.model_validate(values)
    except ValidationError as error:
        raise _wrong_value(error, values, origins, name) from error
    check_used(values, given, origins, name)
    config, origins = _resolve(given, origins)
    check_together(config, origins, name)
    return LoadedConfig(config, _all_origins(config, origins), source)


def _refuse_unknown(
    values: Mapping[str, Any],
    prefix: str,
    model: type[BaseModel],
    origins: Origins,
    source: str,
    kind: Any,
) -> None:
    """Raise ConfigError for a key that the model lacks. `kind`: the config's `training_type`."""
    for key, value in values.items():
        dotted = f"{prefix}{key}"
        if key not in model.model_fields:
            place = origins.get(dotted, source)
            near = _nearest(str(key), prefix, model)
            hint = replaced(str(key)) or did_you_mean(near, "see `canary config show`")
            users = users_of(near.partition(".")[0]) if near and "." in near else ()
            if users and kind not in (None, *users):
                hint = f"'{near}' is only for training_type {', '.join(users)}, and this is {kind}"
            raise ConfigError(f"unknown key {dotted!r} in {place}", hint, file=source, key=dotted)
        section = SECTIONS.get(dotted)
        if section is not None and isinstance(value, Mapping):
            _refuse_unknown(value, f"{dotted}.", section, origins, source, kind)


def _nearest(key: str, prefix: str, model: type[BaseModel]) -> str | None:
    """Return the key that was meant: the same key of another section, or a similar one here."""
    places: dict[str, type[BaseModel]] = {"": CanaryConfig}
    places |= {f"{name}.": section for name, section in SECTIONS.items()}
    for place, section in places.items():
        if key in section.model_fields:
            return f"{place}{key}"
    near = nearest(key, model.model_fields)
    return f"{prefix}{near}" if near else None


KIND_MESSAGES = {
    "model_type": "input should be a mapping of keys",
    "dict_type": "input should be a mapping of keys",
    "tuple_type": "input should be a list",
    "string_pattern_mismatch": "input has an unknown form",
}
"""Error type of pydantic -> a message for people who write YAML."""

KEY_HINTS = {
    "device": "auto, cpu, cuda or cuda:N",
    "name": "letters, digits, '.', '_' and '-', at most 64",
    "report_to": "for example [wandb]",
    **dict.fromkeys(
        (
            "reward_functions",
            "formatting_function",
            "data_collator",
            "callbacks",
            "model_factory",
            "trainer_factory",
        ),
        "write package.module:function",
    ),
}


def _wrong_value(
    error: ValidationError, values: Mapping[str, Any], origins: Origins, source: str
) -> ConfigError:
    first = error.errors()[0]
    key = ".".join(str(part) for part in first["loc"])
    place = _place(key, origins) or source
    message = KIND_MESSAGES.get(first["type"], first["msg"][0].lower() + first["msg"][1:])
    hint = replaced(f"{key}: {first['input']}") or KEY_HINTS.get(key.split(".")[0])
    if key.startswith("metrics."):
        hint = GATE_HINTS.get(key.rpartition(".")[2], "docs/metrics.md has examples")
    if first["input"] is None:
        hint = "remove the line to get the default"
    got = reprlib.repr(first["input"])
    shown = gate_key(key, values["metrics"]) if key.startswith("metrics.") else key
    return ConfigError(f"{shown} in {place}: {message}, got {got}", hint, file=source, key=key)


def _place(key: str, origins: Origins) -> str | None:
    """Return where a key was set: its own line, the first below it, or its section's."""
    if key in origins:
        return origins[key]
    below = (place for name, place in origins.items() if name.startswith(f"{key}."))
    return next(below, origins.get(key.split(".")[0]))


def trainer_defaults(training_type: str) -> dict[str, Any]:
    """Return the trainer's defaults of the fields that a config may leave null."""
    row = trainer_row(training_type)
    return {**row.defaults, **{key: SECTIONS[key]() for key in row.uses & SECTIONS.keys()}}


def _resolve(config: CanaryConfig, origins: Origins) -> tuple[CanaryConfig, Origins]:
    """Fill in the defaults that depend on the trainer."""
    defaults = trainer_defaults(config.training_type)
    if config.use_peft:
        defaults |= LORA_DEFAULTS
    if config.training_type == "exec":
        own = EXEC_DEFAULTS | (IMPORT_DEFAULTS if config.imports is not None else {})
        unset = {key: value for key, value in own.items() if key not in origins}
        config = config.model_copy(update=unset)
        origins = {**origins, **dict.fromkeys(unset, "exec default")}
    else:
        defaults["max_steps"] = BUILT_IN_STEPS
    steps = config.max_steps or defaults.get("max_steps")
    if config.metrics_warmup_steps is None and steps is not None:
        looked = look_steps(config.look_steps, steps)
        defaults["metrics_warmup_steps"] = warmup_steps(looked, steps)
    missing = {key: value for key, value in defaults.items() if getattr(config, key) is None}
    named = dict.fromkeys(missing, f"{config.training_type} default")
    if "metrics_warmup_steps" in missing:
        named["metrics_warmup_steps"] = FROM_STEPS
    named |= {key: "LoRA default" for key in missing if key in LORA_DEFAULTS}
    return config.model_copy(update=missing), origins | named


def _all_origins(config: CanaryConfig, origins: Origins) -> Origins:
    complete: Origins = {}
    for key, value in config:
        if isinstance(value, BaseModel):
            for inner, _ in value:
                dotted = f"{key}.{inner}"
                complete[dotted] = origins.get(dotted, DEFAULT)
        else:
            complete[key] = origins.get(key, DEFAULT)
    return complete | {key: place for key, place in origins.items() if "." in key}
