"""Tables of the docs, made from the code: config keys, gates, trainers, checks, presets."""

from __future__ import annotations

import types
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel

from canary.compare.checks import CHECKS
from canary.config.metric_gates import MetricGate
from canary.config.render import scalar
from canary.config.schema import CanaryConfig
from canary.config.threshold_keys import Thresholds
from canary.config.trainers import TRAINERS, users_of
from canary.imports.preset import shipped, shipped_names


def keys_table() -> str:
    """Return a Markdown table of every key with type, default, trainers and meaning."""
    rows = ["| key | type | default | trainers | meaning |", "|---|---|---|---|---|"]
    rows += _table_rows(CanaryConfig, "")
    return "\n".join(rows) + "\n"


def _table_rows(model: type[BaseModel], prefix: str) -> list[str]:
    rows: list[str] = []
    for key, field in model.model_fields.items():
        inner = field.annotation
        section = next((part for part in (inner, *get_args(inner)) if _is_section(part)), None)
        if section is not None and get_origin(inner) is not tuple:
            rows += _table_rows(section, f"{key}.")
            continue
        default = "required"
        if not field.is_required():
            default = f"`{scalar(field.get_default(call_default_factory=True))}`"
        if prefix == "thresholds." and key in Thresholds.model_fields:
            default = f"`{scalar(Thresholds.model_fields[key].default)}`"
        users = users_of(f"{prefix}{key}") or users_of(prefix.removesuffix("."))
        if key.startswith("lora_"):
            users = ("with use_peft",)
        meaning = " ".join((field.description or "").split()).replace("|", "\\|")
        rows.append(
            f"| `{prefix}{key}` | {_type_name(inner)} | {default} | "
            f"{', '.join(users) or 'all'} | {meaning} |"
        )
    return rows


def gates_table() -> str:
    """Return a Markdown table of the keys of a gate in `metrics`."""
    rows = ["| key | type | default | meaning |", "|---|---|---|---|"]
    for key, field in MetricGate.model_fields.items():
        default = "required" if field.is_required() else f"`{scalar(field.default)}`"
        kind = "number or text" if key == "limit" else _type_name(field.annotation)
        meaning = " ".join((field.description or "").split())
        rows.append(f"| `{key}` | {kind} | {default} | {meaning} |")
    return "\n".join(rows) + "\n"


def trainers_table() -> str:
    """Return a Markdown table of every trainer with its data and what is recorded."""
    rows: dict[str, list[str]] = {}
    for name, row in TRAINERS.items():
        rows.setdefault(f"{row.takes_rows} | {row.recorded}", []).append(f"`{name}`")
    lines = ["| `training_type` | rows | recorded beside losses and gradients |", "|---|---|---|"]
    lines += [f"| {', '.join(names)} | {cells} |" for cells, names in rows.items()]
    return "\n".join(lines) + "\n"


def _is_section(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _type_name(annotation: Any) -> str:
    """Return a field's type as the tables of the docs name it."""
    origin = get_origin(annotation)
    if origin is Literal:
        return ", ".join(str(choice) for choice in get_args(annotation))
    if origin in (types.UnionType, Union):
        return " or ".join(
            _type_name(part) for part in get_args(annotation) if part is not type(None)
        )
    if origin is tuple:
        return "list"
    if origin is dict:
        return "mapping"
    if hasattr(annotation, "__metadata__"):
        return _type_name(get_args(annotation)[0])
    return {bool: "bool", int: "int", float: "float", str: "str"}.get(annotation, str(annotation))


def checks_table() -> str:
    """Render the checks as a Markdown table. The rules without a limit stand on their own page."""
    lines = ["| measures | check | group | lane | limits |", "|---|---|---|---|---|"]
    for name, row in CHECKS.items():
        if row.lane == "rule" and not row.limits:
            continue
        limits = ", ".join(f"`{key}`" for key in row.limits)
        lines.append(f"| {row.title} | `{name}` | {row.group} | {row.lane} | {limits} |")
    return "\n".join(lines) + "\n"


def preset_table() -> str:
    """Return a Markdown table of the shipped presets."""
    rows = ["| preset | names read in | version of that code | formats |", "|---|---|---|---|"]
    for name in shipped_names():
        one = shipped(name)
        formats = ", ".join(dict.fromkeys(leaf.format for leaf in one.leaves))
        rows.append(f"| `{name}` | {one.repository} | {one.version} | {formats} |")
    return "\n".join(rows) + "\n"
