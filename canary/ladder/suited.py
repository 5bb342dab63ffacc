"""Which switches a config leaves to the ladder: those that its `trainer_args` do not set and its
rules accept. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from canary.config.checks import SAID_TWICE, check_speed, given
from canary.config.schema import CanaryConfig
from canary.errors import ConfigError, UsageError
from canary.ladder.levels import Settings, Switch, baseline_settings, equal_lengths
from canary.ladder.machine import Machine

SET_BY: Mapping[str, Sequence[str]] = {
    **{f"speed.{switch}": names for switch, names in SAID_TWICE.items()},
    "speed.decode": (*SAID_TWICE["decode"], *SAID_TWICE["kv_cache"]),
}
"""Arguments in `trainer_args` by the config key that they set."""

BY_DEFAULT: Mapping[str, Any] = {
    "speed.advantages": "vectorised",
    "speed.logprobs": "completion",
    "speed.shared_forward": True,
    "speed.kv_cache": True,
    "speed.rollout_batch": "whole",
    "attn_implementation": "sdpa",
}
"""Values that null keys mean. A model without SDPA cannot be switched to SDPA either."""


def unsuited(switch: Switch, config: CanaryConfig, machine: Machine) -> str:
    """Return why the config does not leave a switch to the ladder; empty if it does."""
    off = switch.off or {}
    choices = [] if switch.lacks(config, machine) else list(switch.choices(config, machine))
    for key in dict.fromkeys((*off, *(key for choice in choices for key in choice))):
        name = next((one for one in SET_BY.get(key, ()) if given(config.trainer_args, one)), None)
        if name is not None:
            return f"trainer_args.{name} sets it"
    refused = refusal(config, off)
    if refused or not choices:
        return refused
    reasons = [refusal(config, {**off, **choice}) for choice in choices]
    return reasons[0] if all(reasons) else ""


def left_out(switch: Switch, config: CanaryConfig, machine: Machine) -> str:
    """Return why the machine or the config excludes a switch; empty if neither does."""
    return switch.lacks(config, machine) or unsuited(switch, config, machine)


def suited(
    switches: Sequence[Switch], config: CanaryConfig, machine: Machine
) -> tuple[Switch, ...]:
    """Return the switches that the config leaves to the ladder. The other settings stay as the user
    set them at every level."""
    return tuple(one for one in switches if not unsuited(one, config, machine))


def accepted_choices(
    switch: Switch, config: CanaryConfig, machine: Machine, over: Settings
) -> list[Settings]:
    """Return the choices of a switch that machine and config accept on top of other settings."""
    if switch.lacks(config, machine):
        return []
    choices = switch.choices(config, machine)
    return [one for one in choices if not refusal(config, {**over, **one})]


def refusal(config: CanaryConfig, settings: Settings) -> str:
    """Return why the rules of `speed` refuse settings in a config; empty if they accept them."""

    def refuse(key: str, message: str, hint: str) -> None:
        raise ConfigError(f"{key} {message}", hint, key=key)

    try:
        check_speed(with_settings(config, settings), refuse)
    except ConfigError as error:
        return error.message
    return ""


def with_settings(config: CanaryConfig, settings: Settings) -> CanaryConfig:
    """Return the config with values by dotted key, without checking them."""
    plain: dict[str, Any] = {}
    sections: dict[str, dict[str, Any]] = {}
    for key, value in settings.items():
        section, _, name = key.rpartition(".")
        if section:
            sections.setdefault(section, {})[name] = value
        else:
            plain[key] = value
    for section, values in sections.items():
        current: Any = getattr(config, section)
        if isinstance(current, BaseModel):
            plain[section] = current.model_copy(update=values)
    return config.model_copy(update=plain)


def require_equal_work(config: CanaryConfig) -> None:
    """Raise UsageError if the config's `trainer_args` exclude completions of equal length."""
    refused = refusal(config, equal_lengths(config))
    if refused:
        raise UsageError(
            f"levels are timed on completions of equal length, but {refused}",
            "remove it from trainer_args",
        )


def require_baseline(config: CanaryConfig, switches: Sequence[Switch], machine: Machine) -> None:
    """Raise UsageError if the baseline's settings are not a valid config."""
    off = baseline_settings(config, suited(switches, config, machine))
    refused = refusal(config, off)
    if refused:
        raise UsageError(f"this config has no baseline level: {refused}")


def in_force(config: CanaryConfig, settings: Settings, machine: Machine) -> str:
    """Return why settings would not change a config; empty if they would."""
    defaults = dict(BY_DEFAULT)
    if machine.gpus:
        defaults["speed.pin_memory"] = True
    now = {key: _value(config, key) for key in settings}
    if now == dict(settings):
        return "already in the config"
    active = {key: defaults.get(key) if value is None else value for key, value in now.items()}
    return "on by default" if active == dict(settings) else ""


def _value(config: CanaryConfig, key: str) -> Any:
    found: Any = config
    for part in key.split("."):
        found = getattr(found, part)
    return found
