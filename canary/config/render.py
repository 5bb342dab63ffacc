"""Write a config as YAML, and the schema as JSON."""

from __future__ import annotations

import json
from typing import Any

import yaml
from pydantic import BaseModel

from canary.config.load import LoadedConfig
from canary.config.metric_gates import MetricGate
from canary.config.redaction import hidden
from canary.config.schema import CanaryConfig
from canary.config.trainers import EXEC_KEYS


def resolved_yaml(loaded: LoadedConfig) -> str:
    """Return the complete config as YAML with the origin of each value.

    It can be loaded again, unless secrets of a command were hidden."""
    return "# The resolved config of this run, with the origin of each value.\n" + show_text(loaded)


def show_text(loaded: LoadedConfig) -> str:
    """Return YAML with a comment after each value that says where it came from."""
    rows: list[tuple[str, str]] = []
    is_exec = loaded.config.training_type == "exec"
    for key, value in loaded.config:
        if is_exec and key not in EXEC_KEYS:
            continue  # The command decides it, not this config.
        if key == "command":
            value = hidden(value)
        inner = dict(value) if isinstance(value, BaseModel | dict) else {}
        if not inner:
            rows.append((f"{key}: {scalar(value)}", loaded.origins[key]))
            continue
        rows.append((f"{key}:", ""))
        rows += [
            (f"  {scalar(name)}: {scalar(item)}", _origin(loaded, f"{key}.{name}"))
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


def scalar(value: Any) -> str:
    """Return a value as YAML on one line."""
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
    for section in (schema, *schema["$defs"].values()):
        for key in section["properties"].values():
            key["description"] = " ".join(key["description"].split())
    schema["title"] = "RLHF Canary config"
    schema["properties"]["extends"] = {
        "type": "string",
        "description": "Another config, relative to this file; values here override it.",
    }
    return json.dumps(schema, indent=2) + "\n"
