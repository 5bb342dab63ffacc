"""Compares config and environment key by key: the `setting` stages of the exact lane."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from canary.baseline.comparability import asked_dtype, is_imported
from canary.compare.commands import command_changes
from canary.compare.report import Difference, KeyChange
from canary.config.schema import CanaryConfig
from canary.config.setting_names import is_place
from canary.config.trainers import EXEC_KEYS
from canary.record.curves import Curve
from canary.record.types import RunRecord

RATE = "learning_rate"
SAME_RATE = 1e-5
"""Logs round, some to six digits."""
NOT_SHOWN = ("output_dir", "command")
"""Paths of records and models do not change their content; a command is compared by its words."""

COSMETIC_CONFIG = (
    "name",
    "description",
    "report_to",
    "timeout",
    "repeats",
    "stop_on",
    "metrics_warmup_steps",
    "look_steps",
    "exact",
    "profiler",
    "thresholds",
    "metrics",
    "check",
)
"""Keys that cannot change training, so they never excuse a change of learning. Trainer arguments
and command options that name a path are cosmetic too."""
COSMETIC_ENVIRONMENT = (
    "ram_bytes",
    "container",
    "image",
    "platform",
    "cpu_count",
    "cpu_usable",
    "gpu_reason",
    "variables.CUDA_VISIBLE_DEVICES",
    "variables.HF_HUB_OFFLINE",
    "variables.TOKENIZERS_PARALLELISM",
)
MOST_KEYS = 8
"""Keys of a config that a sentence names: each may matter. An upgrade changes many packages."""

DEFAULTS: dict[str, Any] = CanaryConfig().model_dump(mode="json")


def shown(value: Any) -> str:
    """Return a config value as text for a sentence."""
    return "not set" if value is None else str(value)


def flatten(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (dotted key, leaf); lists are leaves."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from flatten(inner, f"{prefix}.{key}" if prefix else str(key))
    else:
        yield prefix, value


def _under(key: str, roots: tuple[str, ...]) -> bool:
    if key.startswith("trainer_args.") and is_place(key.removeprefix("trainer_args.")):
        return True
    return any(key == root or key.startswith(f"{root}.") for root in roots)


def _value(leaves: Mapping[str, Any], key: str) -> Any:
    value = leaves.get(key)
    return None if value in ([], {}) else value


def key_changes(
    baseline: Mapping[str, Any], current: Mapping[str, Any], cosmetic: tuple[str, ...]
) -> tuple[KeyChange, ...]:
    """Return the leaves that differ. A missing leaf, null and an empty list are equal."""
    if baseline == current:
        return ()
    before, after = dict(flatten(baseline)), dict(flatten(current))
    keys = [*after, *(key for key in before if key not in after)]
    return tuple(
        KeyChange(key, before.get(key), after.get(key), _under(key, cosmetic))
        for key in keys
        if _value(before, key) != _value(after, key)
    )


def _comparable_environment(env: Mapping[str, Any]) -> dict[str, Any]:
    """Drop facts that identify one particular GPU instead of its model."""
    gpus = [
        {k: v for k, v in gpu.items() if k not in ("uuid", "index", "serial", "pci_bus_id")}
        for gpu in env.get("gpus") or []
    ]
    return {**env, "gpus": gpus}


def _defaults(record: RunRecord, other: RunRecord) -> dict[str, Any]:
    """Return the defaults of keys that only the other record's config has."""
    if record.config.get("command"):
        # Its config holds only settings that were set or seen: a missing key equals only a default.
        return {k: v for k, v in DEFAULTS.items() if k in other.config and other.config[k] == v}
    return {
        key: DEFAULTS[key]
        for key in other.config
        if isinstance(DEFAULTS.get(key), bool | int | float | str)
    }


def _comparable_config(record: RunRecord, other: RunRecord) -> dict[str, Any]:
    """Return the part of a record's config that can be compared with the other's."""
    config = _defaults(record, other) | record.config
    if any(r.config.get("command") and "trainer" not in r.config for r in (record, other)):
        # One command ended before its training, so its settings are unknown.
        known = set(EXEC_KEYS) - {"training_type"}
        config = {key: value for key, value in config.items() if key in known}
    return {key: value for key, value in config.items() if key not in NOT_SHOWN}


def config_changes(baseline: RunRecord, current: RunRecord) -> tuple[KeyChange, ...]:
    """Return the config keys that differ. A key that an older version lacks has its default."""
    was, now = _comparable_config(baseline, current), _comparable_config(current, baseline)
    found = key_changes(was, now, COSMETIC_CONFIG)
    loaded = _dtype_shown_by_model(baseline, current)
    changes = (
        *changed_options(baseline, current),
        *(change for change in found if not (loaded and change.key == "dtype")),
    )
    known = _of_both(changes, baseline, current, "config")
    return (*known, *_changed_rate(baseline, current))


def _changed_rate(baseline: RunRecord, current: RunRecord) -> Iterator[KeyChange]:
    """Yield the largest learning rate of two imported runs if it differs: it is a setting, and no
    config of theirs has it."""
    if not (is_imported(baseline) and is_imported(current)):
        return
    was, now = (
        dict(zip(curve.steps, curve.values, strict=True))
        for curve in (one.curves.get(RATE, Curve()) for one in (baseline, current))
    )
    shared = was.keys() & now.keys()
    before, after = (max((side[step] for step in shared), default=0.0) for side in (was, now))
    if math.isfinite(before + after) and not math.isclose(before, after, rel_tol=SAME_RATE):
        yield KeyChange(RATE, before, after)


def _of_both(
    changes: tuple[KeyChange, ...],
    baseline: RunRecord,
    current: RunRecord,
    part: Literal["config", "env"],
) -> tuple[KeyChange, ...]:
    """Return the changes of what both sides record: what an import does not know has not changed.

    A run of the canary has all settings. One with `import:` has its config, one imported by hand
    nothing. A trainer is named otherwise there."""
    sides = (baseline, current)
    kinds = {(is_imported(one), bool(one.config.get("command"))) for one in sides}
    if len(kinds) == 1 or not any(map(is_imported, sides)):
        return changes
    was, now = (
        {key for key, value in flatten(getattr(one, part)) if value is not None} for one in sides
    )
    return tuple(one for one in changes if one.key in was & now and one.key != "training_type")


def changed_options(baseline: RunRecord, current: RunRecord) -> tuple[KeyChange, ...]:
    """Return the words of the user's command that differ."""
    return command_changes(baseline.config.get("command"), current.config.get("command"))


def made_by_command(
    baseline: RunRecord, current: RunRecord, changes: Sequence[KeyChange]
) -> set[str]:
    """Return the keys that a user's command made of its code, files and options: no config or
    option has them, so nobody can set them back."""
    if not (baseline.config.get("command") and current.config.get("command")):
        return set()
    given = {*EXEC_KEYS, *(change.key for change in changed_options(baseline, current))}
    return {change.key for change in changes if change.key.partition(".")[0] not in given}


def environment_changes(baseline: RunRecord, current: RunRecord) -> tuple[KeyChange, ...]:
    """Return the imported packages, drivers, devices and variables that differ."""
    found = key_changes(
        _comparable_environment(baseline.env),
        _comparable_environment(current.env),
        COSMETIC_ENVIRONMENT,
    )
    loaded = _dtype_shown_by_model(baseline, current)
    changes = tuple(
        # Code decides what is imported: another version is a difference, an import is not.
        replace(one, cosmetic=True)
        if one.key.startswith("packages.") and None in (one.baseline, one.current)
        else one
        for one in found
        if not (loaded and one.key == "device.dtype")
    )
    return _of_both(changes, baseline, current, "env")


def _dtype_shown_by_model(baseline: RunRecord, current: RunRecord) -> bool:
    """Whether both sides ask for the same dtype and record their parameters' dtypes: a difference
    is then one of the parameters."""
    asked = asked_dtype(baseline.config) == asked_dtype(current.config)
    return asked and all(side.exact.get("model", {}).get("dtypes") for side in (baseline, current))


def named(words: Sequence[str], most: int) -> str:
    """Return the first of several words, and how many there are beside them."""
    more = f" and {len(words) - most} more" if len(words) > most else ""
    return ", ".join(words[:most]) + more


def change_difference(stage: str, changes: tuple[KeyChange, ...]) -> list[Difference]:
    """Return the changes that are not cosmetic as one difference of their stage."""
    relevant = [change for change in changes if not change.cosmetic]
    words = [f"{one.key} {shown(one.baseline)} -> {shown(one.current)}" for one in relevant]
    if not relevant:
        return []
    first = relevant[0]
    return [
        Difference(
            stage,
            first.key,
            first.baseline,
            first.current,
            count=len(relevant),
            detail=named(words, MOST_KEYS if stage == "config" else 1),
        )
    ]
