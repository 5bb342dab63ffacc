"""Write a config as YAML, and the schema as JSON and as Markdown tables."""

from __future__ import annotations

import json
import types
from typing import Any, Literal, Union, get_args, get_origin

import yaml
from pydantic import BaseModel

from canary.config.load import LoadedConfig
from canary.config.metric_gates import MetricGate
from canary.config.redaction import hidden
from canary.config.schema import CanaryConfig
from canary.config.trainers import EXEC_KEYS, TRAINERS, users_of


def show_text(loaded: LoadedConfig) -> str:
    """Return YAML with a comment after each value that says where it came from."""
    return _lines(loaded)


def resolved_yaml(loaded: LoadedConfig) -> str:
    """Return the complete config as YAML with the origin of each value.

    It can be loaded again, unless secrets of a command were hidden."""
    return "# The resolved config of this run, with the origin of each value.\n" + _lines(loaded)


def _lines(loaded: LoadedConfig) -> str:
    rows: list[tuple[str, str]] = []
    is_exec = loaded.config.training_type == "exec"
    for key, value in loaded.config:
        if is_exec and key not in EXEC_KEYS:
            continue  # The command decides it, not this config.
        if key == "command":
            value = hidden(value)
        inner = dict(value) if isinstance(value, BaseModel | dict) else {}
        if not inner:
            rows.append((f"{key}: {_scalar(value)}", loaded.origins[key]))
            continue
        rows.append((f"{key}:", ""))
        rows += [
            (f"  {_scalar(name)}: {_scalar(item)}", _origin(loaded, f"{key}.{name}"))
            for name, item in inner.items()
        ]
    width = min(60, max(len(text) for text, _ in rows))
    return "".join(
        f"{text:<{width}}  # {' '.join(origin.split())}\n" if origin else f"{text}\n"
        for text, origin in rows
    )


def _origin(loaded: LoadedConfig, key: str) -> str:
    """Return the origin of a value; several for a mapping that was merged."""
    inside = {place for name, place in loaded.origins.items() if name.startswith(f"{key}.")}
    return ", ".join(sorted(inside)) or loaded.origins[key]


def _scalar(value: Any) -> str:
    if isinstance(value, tuple):
        value = [item.written() if isinstance(item, MetricGate) else item for item in value]
    broken = isinstance(value, str) and not value.isprintable()
    text: str = yaml.safe_dump(
        value,
        default_flow_style=True,
        default_style='"' if broken else None,
        width=10**6,
        allow_unicode=True,
        sort_keys=False,
    )
    return text.removesuffix("\n").removesuffix("\n...")


def json_schema() -> str:
    """Return the JSON schema of a config file, for completion and checks in editors."""
    schema = CanaryConfig.model_json_schema()
    schema["title"] = "RLHF Canary config"
    schema["properties"]["extends"] = {
        "type": "string",
        "description": "Another config, relative to this file; values here override it.",
    }
    return json.dumps(schema, indent=2) + "\n"


def markdown_table() -> str:
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
            default = f"`{_scalar(field.get_default(call_default_factory=True))}`"
        users = users_of(f"{prefix}{key}") or users_of(prefix.removesuffix("."))
        if key.startswith("lora_"):
            users = ("with use_peft",)
        meaning = (field.description or "").replace("|", "\\|")
        rows.append(
            f"| `{prefix}{key}` | {type_name(inner)} | {default} | "
            f"{', '.join(users) or 'all'} | {meaning} |"
        )
    return rows


def gates_table() -> str:
    """Return a Markdown table of the keys of a gate in `metrics`."""
    rows = ["| key | type | default | meaning |", "|---|---|---|---|"]
    for key, field in MetricGate.model_fields.items():
        default = "required" if field.is_required() else f"`{_scalar(field.default)}`"
        kind = "number or text" if key == "limit" else type_name(field.annotation)
        rows.append(f"| `{key}` | {kind} | {default} | {field.description} |")
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


def type_name(annotation: Any) -> str:
    """Return a field's type as the tables of the docs name it."""
    origin = get_origin(annotation)
    if origin is Literal:
        return ", ".join(str(choice) for choice in get_args(annotation))
    if origin in (types.UnionType, Union):
        return " or ".join(
            type_name(part) for part in get_args(annotation) if part is not type(None)
        )
    if origin is tuple:
        return "list"
    if origin is dict:
        return "mapping"
    if hasattr(annotation, "__metadata__"):
        return type_name(get_args(annotation)[0])
    return {bool: "bool", int: "int", float: "float", str: "str"}.get(annotation, str(annotation))
