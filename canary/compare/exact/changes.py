"""Config and environment of two records, key by key: the exact lane's stages of settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from canary.baseline.comparability import asked_dtype
from canary.compare.commands import command_changes
from canary.compare.report import Difference, KeyChange
from canary.config.output_names import is_place
from canary.config.schema import CanaryConfig
from canary.config.secret_names import is_special_token
from canary.config.trainers import EXEC_KEYS
from canary.record.types import RunRecord

NOT_SHOWN = ("output_dir", "save_model", "command")
"""Where a record or a model lies says nothing of what is in it; a command is read by its words."""

COSMETIC_CONFIG = (
    "name",
    "description",
    "tier",
    "report_to",
    "timeout",
    "repeats",
    "stop_on",
    "metrics_warmup_steps",
    "probe_steps",
    "profiler",
    "thresholds",
)
"""Keys that cannot change what is trained: they never excuse a difference in what is learned. Of a
trainer's own arguments, and of a command's options, those that name a place are such too."""

COSMETIC_ENVIRONMENT = (
    "ram_bytes",
    "container",
    "platform",
    "cpu_count",
    "cpu_usable",
    "gpu_reason",
    "variables.CUDA_VISIBLE_DEVICES",
    "variables.HF_HUB_OFFLINE",
    "variables.TOKENIZERS_PARALLELISM",
)

DEFAULTS: dict[str, Any] = CanaryConfig().model_dump(mode="json")


def shown(value: Any) -> str:
    """A value of a config as a sentence holds it."""
    return "not set" if value is None else str(value)


def flatten(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yields dotted keys and their leaves; lists are leaves."""
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
    """Leaves that differ, in the order of the current side; a missing one counts as null, and so
    does an empty list."""
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
    """Without what names one specimen of a device instead of its kind."""
    known = dict(env)
    known["gpus"] = [
        {k: v for k, v in gpu.items() if k not in ("uuid", "index", "serial", "pci_bus_id")}
        for gpu in env.get("gpus") or []
        if isinstance(gpu, Mapping)
    ]
    return known


def _defaults(record: RunRecord, other: RunRecord) -> dict[str, Any]:
    """Defaults of the keys that the other record's config has, for the one that lacks them."""
    if record.config.get("command"):
        # It states what was asked and seen: a default is one of an older version, never seen.
        return {k: v for k, v in DEFAULTS.items() if k in other.config and other.config[k] == v}
    return {
        key: DEFAULTS[key]
        for key in other.config
        if isinstance(DEFAULTS.get(key), bool | int | float | str)
    }


def _stated(record: RunRecord, other: RunRecord) -> dict[str, Any]:
    """What a record's config says that can be compared with the other's."""
    config = _defaults(record, other) | record.config
    if any(r.config.get("command") and "trainer" not in r.config for r in (record, other)):
        # One of them never got to its training: nobody saw its settings.
        known = set(EXEC_KEYS) - {"training_type"}
        config = {key: value for key, value in config.items() if key in known}
    return {key: value for key, value in config.items() if key not in NOT_SHOWN}


def config_changes(baseline: RunRecord, current: RunRecord) -> tuple[KeyChange, ...]:
    """Keys of the resolved configs that differ. A key that one version did not know yet had its
    default."""
    found = key_changes(_stated(baseline, current), _stated(current, baseline), COSMETIC_CONFIG)
    loaded = _told_by_the_model(baseline, current)
    return (
        *spoken_changes(baseline, current),
        *(
            change
            for change in found
            if not (loaded and change.key == "dtype")
            and not _token_came_later(change.key, baseline, current)
        ),
    )


def _token_came_later(key: str, *sides: RunRecord) -> bool:
    """Whether it is a special token that a side's version left out, together with the secrets."""
    section, _, name = key.rpartition(".")
    return (
        section == "trainer_args"
        and is_special_token(name)
        and not all(name in (side.config.get(section) or {}) for side in sides)
        and all(side.config.get("command") for side in sides)
    )


def spoken_changes(baseline: RunRecord, current: RunRecord) -> tuple[KeyChange, ...]:
    """Words of a user's own command that differ."""
    return command_changes(baseline.config.get("command"), current.config.get("command"))


def environment_changes(baseline: RunRecord, current: RunRecord) -> tuple[KeyChange, ...]:
    """Packages, drivers, devices and variables that differ."""
    found = key_changes(
        _comparable_environment(baseline.env),
        _comparable_environment(current.env),
        COSMETIC_ENVIRONMENT,
    )
    loaded = _told_by_the_model(baseline, current)
    return tuple(change for change in found if not (loaded and change.key == "device.dtype"))


def _told_by_the_model(baseline: RunRecord, current: RunRecord) -> bool:
    """Whether nobody asked for another dtype: where one shows all the same, the parameters are of
    another, or a version before read them in another way."""
    asked = asked_dtype(baseline.config) == asked_dtype(current.config)
    return asked and all(side.exact.get("model", {}).get("dtypes") for side in (baseline, current))


def change_difference(stage: str, changes: tuple[KeyChange, ...]) -> list[Difference]:
    """The first change that can matter, as a difference of its stage."""
    telling = [change for change in changes if not change.cosmetic]
    if not telling:
        return []
    first = telling[0]
    more = f" and {len(telling) - 1} more" if len(telling) > 1 else ""
    return [
        Difference(
            stage,
            first.key,
            first.baseline,
            first.current,
            count=len(telling),
            detail=f"{first.key} {shown(first.baseline)} -> {shown(first.current)}{more}",
        )
    ]
