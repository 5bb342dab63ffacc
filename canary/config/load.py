"""Load a config from files and settings, check it, and note where each value came from."""

from __future__ import annotations

import reprlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from canary.config.checks import conflicts, unused
from canary.config.metric_gates import HINTS as GATE_HINTS
from canary.config.metric_gates import MetricGate, gate_key
from canary.config.samples import BUILTIN
from canary.config.schema import CanaryConfig, ProfilerConfig
from canary.config.sections import CheckConfig, ImportConfig, PPOConfig, SpeedConfig
from canary.config.source import Origins, apply_overrides, read_chain
from canary.config.spans import look_steps, warmup_steps
from canary.config.threshold_keys import ThresholdsConfig
from canary.config.trainer_rules import Refusal
from canary.config.trainers import (
    BUILT_IN_STEPS,
    EXEC_DEFAULTS,
    IMPORT_DEFAULTS,
    LORA_DEFAULTS,
    trainer_row,
    users_of,
)
from canary.errors import ConfigError, did_you_mean, nearest, replaced

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
    try:
        given = CanaryConfig.model_validate(values)
    except ValidationError as error:
        raise _wrong(error, values, origins, name) from error
    _refuse(unused(values, given), origins, name)
    config, origins = _resolve(given, origins)
    _refuse(conflicts(config), origins, name)
    return LoadedConfig(config, defaultdict(partial(str, DEFAULT), origins), source)


def _refuse(refusals: Iterable[Refusal], origins: Origins, source: str) -> None:
    """Raise the first refusal, with the place where its key was set."""
    for key, message, hint in refusals:
        place = origins.get(key, source)
        raise ConfigError(f"{key} in {place} {message}", hint, file=source, key=key)


def gates_in(
    values: Any, source: str, places: Mapping[str, str] | None = None
) -> tuple[MetricGate, ...]:
    """Return the gates of a record's config or of a file of limits.

    `places`: dotted key (`metrics.0.name`) -> file and line.

    Raises:
        ConfigError: one line that names source, key and remedy.
    """
    document = {"metrics": values or ()}
    try:
        return CanaryConfig.model_validate(document).metrics
    except ValidationError as error:
        raise _wrong(error, document, dict(places or {}), source) from error


def _other_key(loc: Sequence[int | str], kind: Any) -> str | None:
    """Return what was meant by an unknown key. `kind`: the config's `training_type`."""
    *section, key = map(str, loc)
    if section[:1] == ["metrics"]:
        near = nearest(key, MetricGate.model_fields)
        return did_you_mean(near, f"a gate has {', '.join(MetricGate.model_fields)}")
    near = _nearest(key, section)
    users = users_of(near.partition(".")[0]) if near and "." in near else ()
    if users and kind not in (None, *users):
        return f"'{near}' is only for training_type {', '.join(users)}, and this is {kind}"
    return replaced(key) or did_you_mean(near, "see `canary config show`")


def _nearest(key: str, section: Sequence[str]) -> str | None:
    """Return the key that was meant: the same key of another section, or a similar one here."""
    places: dict[str, type[BaseModel]] = {"": CanaryConfig}
    places |= {f"{name}.": model for name, model in SECTIONS.items()}
    for place, model in places.items():
        if key in model.model_fields:
            return f"{place}{key}"
    prefix = "".join(f"{one}." for one in section)
    near = nearest(key, places[prefix].model_fields)
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
        ("reward_functions", "data_collator", "callbacks"),
        "write package.module:function",
    ),
}


def _wrong(
    error: ValidationError, values: Mapping[str, Any], origins: Origins, source: str
) -> ConfigError:
    """Return the first error for people who write YAML: an unknown key before a wrong value."""
    errors = error.errors()
    first = next((one for one in errors if one["type"] == "extra_forbidden"), errors[0])
    key = ".".join(map(str, first["loc"]))
    place = _place(key, origins) or source
    if first["type"] == "extra_forbidden":
        hint = _other_key(first["loc"], values.get("training_type"))
        return ConfigError(f"unknown key {key!r} in {place}", hint, file=source, key=key)
    message = KIND_MESSAGES.get(first["type"], first["msg"][0].lower() + first["msg"][1:])
    shown, own = key, KEY_HINTS.get(key.split(".")[0])
    if key.partition(".")[0] == "metrics":
        own = GATE_HINTS.get(key.rpartition(".")[2], "docs/metrics.md has examples")
        shown = gate_key(key, values["metrics"])
    hint = replaced(f"{key}: {first['input']}") or own
    if first["input"] is None:
        hint = "remove the line to get the default"
    got = reprlib.repr(first["input"])
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
