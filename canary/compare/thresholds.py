"""The limits of a comparison: by tier, from a config or from a file. A check reads each limit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import ValidationError

from canary.config.metric_gates import MetricGate, gates_in
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


def tier_thresholds(name: str) -> Thresholds:
    """Return the limits of a tier, or raise ConfigError for an unknown tier."""
    for tier, thresholds in TIER_THRESHOLDS.items():
        if tier == name:
            return thresholds
    raise ConfigError(f"no threshold tier {name!r}", f"one of {', '.join(TIER_THRESHOLDS)}")


def from_config(config: ThresholdsConfig) -> Thresholds:
    """Return the limits of the config's tier, with the config's changes."""
    given = config.model_dump(exclude={"base_tier"}, exclude_none=True)
    return check_values(tier_thresholds(config.base_tier), given, "the config")


def load_thresholds(path: Path | str, tier: str | None = None) -> Thresholds:
    """Read a YAML file with `base_tier` and keys of `Thresholds`; `tier` replaces `base_tier`.

    The keys are at the top or under `thresholds:`, so a canary's config works too.

    Raises:
        ConfigError: unreadable, an unknown key or a wrong value; names file and key.
    """
    file = Path(path)
    document, _ = read_chain(file)
    values = dict(document)
    if isinstance(values.get("thresholds"), dict):
        beside = {k: value for k, value in values.items() if k not in CanaryConfig.model_fields}
        check_values(DEFAULT_THRESHOLDS, beside, str(file))
        for key in beside:
            raise ConfigError(
                f"{key} in {file} has no effect outside `thresholds:`",
                "move it under `thresholds:`",
                file=file,
                key=key,
            )
        values = dict(values["thresholds"])
    values.pop("metrics", None)
    named = str(values.pop("base_tier", "default"))
    try:
        base = tier_thresholds(tier or named)
    except ConfigError as error:
        if tier:
            raise
        raise ConfigError(
            f"base_tier in {file}: {error.message}", error.hint, file=file, key="base_tier"
        ) from error
    return check_values(base, values, str(file))


def load_metric_gates(path: Path | str) -> tuple[MetricGate, ...] | None:
    """Read the `metrics` of a file of limits; None if it has none.

    Raises:
        ConfigError: unreadable, an unknown key or a wrong value; names file and key.
    """
    document, places = read_chain(Path(path))
    return gates_in(document["metrics"], str(path), places) if "metrics" in document else None


def check_values(base: Thresholds, values: dict[str, Any], source: str) -> Thresholds:
    """Return `base` changed by `values`; raise ConfigError for an unknown key or a bad value."""
    for key in values:
        if key not in Thresholds.model_fields:
            hint = did_you_mean(nearest(key, Thresholds.model_fields), "no check reads it")
            raise ConfigError(
                f"unknown threshold {key!r} in {source}", hint, file=source, key=str(key)
            )
    try:
        return Thresholds.model_validate(base.model_dump() | values)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        message = first["msg"][0].lower() + first["msg"][1:]
        raise ConfigError(
            f"{key} in {source}: {message}, got {first['input']!r}", file=source, key=key
        ) from error


__all__ = [
    "DEFAULT_THRESHOLDS",
    "NIGHTLY_THRESHOLDS",
    "PERF_THRESHOLDS",
    "SMOKE_THRESHOLDS",
    "TIER_THRESHOLDS",
    "Thresholds",
    "TierName",
    "check_values",
    "from_config",
    "load_metric_gates",
    "load_thresholds",
    "tier_thresholds",
]
