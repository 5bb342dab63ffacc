"""The limits of a comparison: by tier, from a config or from a file. A check reads each limit."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from canary.config.load import gates_in
from canary.config.metric_gates import MetricGate
from canary.config.schema import CanaryConfig
from canary.config.source import read_chain
from canary.config.threshold_keys import (
    DEFAULT_THRESHOLDS,
    NIGHTLY_THRESHOLDS,
    PERF_THRESHOLDS,
    SMOKE_THRESHOLDS,
    TIER_THRESHOLDS,
    Thresholds,
    ThresholdsConfig,
    TierName,
)
from canary.errors import ConfigError, did_you_mean, nearest


def tier_thresholds(name: str, where: str = "") -> Thresholds:
    """Return the limits of a tier, or raise ConfigError for an unknown tier.

    `where`: the key and the file of the name, if it is not an option's."""
    if name not in TIER_THRESHOLDS:
        known = f"one of {', '.join(TIER_THRESHOLDS)}"
        raise ConfigError(f"{where}no threshold tier {name!r}", known, key="base_tier")
    return TIER_THRESHOLDS[name]


def from_config(config: ThresholdsConfig) -> Thresholds:
    """Return the limits of the config's tier, with the config's changes."""
    return limits_of(config.model_dump(), "the config")


def limits_of(section: Mapping[str, Any], source: str, tier: str | None = None) -> Thresholds:
    """Return the limits of a section with `base_tier` and keys of `Thresholds`; a key of None is
    not set. `tier` replaces `base_tier`.

    Raises:
        ConfigError: an unknown key or a wrong value; names source and key.
    """
    given = {key: value for key, value in section.items() if value is not None}
    named = str(given.pop("base_tier", "default"))
    base = tier_thresholds(tier) if tier else tier_thresholds(named, f"base_tier in {source}: ")
    for key in given:
        if key not in Thresholds.model_fields:
            hint = did_you_mean(nearest(key, Thresholds.model_fields), "no check reads it")
            raise ConfigError(
                f"unknown threshold {key!r} in {source}", hint, file=source, key=str(key)
            )
    try:
        return Thresholds.model_validate(base.model_dump() | given)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        message = first["msg"][0].lower() + first["msg"][1:]
        raise ConfigError(
            f"{key} in {source}: {message}, got {first['input']!r}", file=source, key=key
        ) from error


def load_thresholds(path: Path | str, tier: str | None = None) -> Thresholds:
    """Read a YAML file with `base_tier` and keys of `Thresholds`; `tier` replaces `base_tier`.

    The keys are at the top or under `thresholds:`, so a canary's config works too.

    Raises:
        ConfigError: unreadable, an unknown key or a wrong value; names file and key.
    """
    document, _ = read_chain(Path(path))
    values = {key: value for key, value in document.items() if key != "metrics"}
    section = values.get("thresholds")
    if isinstance(section, dict):
        for key in values:
            if key not in CanaryConfig.model_fields:
                raise ConfigError(
                    f"{key} in {path} has no effect outside `thresholds:`",
                    "move it under `thresholds:`",
                    file=path,
                    key=key,
                )
        values = section
    return limits_of(values, str(path), tier)


def load_metric_gates(path: Path | str) -> tuple[MetricGate, ...] | None:
    """Read the `metrics` of a file of limits; None if it has none.

    Raises:
        ConfigError: unreadable, an unknown key or a wrong value; names file and key.
    """
    document, places = read_chain(Path(path))
    return gates_in(document["metrics"], str(path), places) if "metrics" in document else None


__all__ = [
    "DEFAULT_THRESHOLDS",
    "NIGHTLY_THRESHOLDS",
    "PERF_THRESHOLDS",
    "SMOKE_THRESHOLDS",
    "TIER_THRESHOLDS",
    "Thresholds",
    "TierName",
    "from_config",
    "limits_of",
    "load_metric_gates",
    "load_thresholds",
    "tier_thresholds",
]
