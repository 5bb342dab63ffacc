"""YAML files as trees with the line of every key; `extends` and `--set` laid over each other."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from canary.errors import ConfigError

Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

Origins = dict[str, str]
"""Dotted key -> where its value came from."""


def read_file(path: Path) -> str:
    """The text of a config.

    Raises:
        ConfigError: missing, a folder, not readable, or not text.
    """
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        near = _near_files(path)
        raise ConfigError(f"no config at {path}", near, file=path) from error
    except IsADirectoryError as error:
        raise ConfigError(f"{path} is a folder", "name a YAML file in it", file=path) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not a text file", "a config is YAML", file=path) from error
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}", file=path) from error


def _near_files(path: Path) -> str:
    folder = path.parent
    names = [item.name for item in folder.glob("*.y*ml")] if folder.is_dir() else []
    close = difflib.get_close_matches(path.name, names, n=1)
    if close:
        return f"did you mean {folder / close[0]}?"
    return "`canary init-config` writes one to start from"


def parse(text: str, file: Path) -> tuple[dict[str, Any], Origins]:
    """One file's values and origins (`file:line`).

    Raises:
        ConfigError: malformed YAML, a key twice, an empty file, or no mapping at the top.
    """
    loader = Loader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            raise ConfigError(f"{file} is empty", "`canary init-config` writes one", file=file)
        if not isinstance(node, yaml.MappingNode):
            raise ConfigError(f"{file} holds no `key: value` lines", file=file)
        origins: Origins = {}
        _note_lines(node, "", file, origins)
        values = loader.construct_document(node)
    except yaml.YAMLError as error:
        raise ConfigError(_yaml_message(error, file), file=file) from error
    finally:
        loader.dispose()
    return values, origins


def _yaml_message(error: yaml.YAMLError, file: Path) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or " ".join(str(error).split())
    if mark is None:
        return f"{file} is not YAML: {problem}"
    return f"{file}:{mark.line + 1}:{mark.column + 1} is not YAML: {problem}"


def _note_lines(node: yaml.MappingNode, prefix: str, file: Path, origins: Origins) -> None:
    for key_node, value_node in node.value:
        key = f"{prefix}{key_node.value}"
        line = key_node.start_mark.line + 1
        if key in origins:
            raise ConfigError(
                f"{file}:{line} has the key '{key}' twice", "keep one of them", file=file, key=key
            )
        origins[key] = f"{file}:{line}"
        if isinstance(value_node, yaml.MappingNode):
            _note_lines(value_node, f"{key}.", file, origins)


def read_chain(path: Path, seen: tuple[Path, ...] = ()) -> tuple[dict[str, Any], Origins]:
    """A file laid over the one that it `extends`, and so on.

    Raises:
        ConfigError: as `read_file` and `parse`, and for a circle of files.
    """
    place = path.resolve()
    if place in seen:
        circle = " -> ".join(item.name for item in (*seen, place))
        raise ConfigError(f"configs extend each other in a circle: {circle}", file=path)
    values, origins = parse(read_file(path), path)
    below = values.pop("extends", None)
    line = origins.pop("extends", str(path))
    if below is None:
        return values, origins
    if not isinstance(below, str):
        raise ConfigError(f"extends at {line} must be a file name", file=path, key="extends")
    base_values, base_origins = read_chain(path.parent / below, (*seen, place))
    return lay_over(base_values, values), base_origins | origins


def lay_over(base: dict[str, Any], top: dict[str, Any]) -> dict[str, Any]:
    """Mappings merge key by key; anything else on top replaces."""
    merged = dict(base)
    for key, value in top.items():
        below = merged.get(key)
        merged[key] = (
            lay_over(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
        )
    return merged


def apply_overrides(
    values: dict[str, Any], origins: Origins, overrides: Sequence[str]
) -> tuple[dict[str, Any], Origins]:
    """Lays `a.b=c` settings over the values; each right side is read as YAML.

    Raises:
        ConfigError: a setting without `=`, or with a value that is no YAML.
    """
    for setting in overrides:
        key, equals, text = setting.partition("=")
        key = key.strip()
        if not equals or not key:
            raise ConfigError(f"--set {setting} is not key=value", "for example --set max_steps=20")
        try:
            value: Any = yaml.load(text, Loader)
        except yaml.YAMLError as error:
            raise ConfigError(f"--set {setting}: the value is not YAML", key=key) from error
        for part in reversed(key.split(".")):
            value = {part: value}
        values = lay_over(values, value)
        origins = {name: place for name, place in origins.items() if name != key}
        origins[key] = "--set"
    return values, origins
