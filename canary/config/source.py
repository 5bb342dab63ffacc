"""Read YAML files with the line of every key, and apply `extends` and `--set`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import yaml

from canary.config.samples import FOLDER, SAMPLES, shipped
from canary.errors import ConfigError, did_you_mean, nearest
from canary.files import content_of

_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Loader(_Base):  # type: ignore[misc]
    """A safe loader that reads 1e-7 as a number; by YAML 1.1 PyYAML reads it as text."""


Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)[eE][-+]?[0-9]+$"),
    list("-+.0123456789"),
)

TO_START = "`canary init canary.yaml` writes one to start from"
LARGEST_NUMBER = 1 << 64
"""No key needs more, and Python refuses to print a number of thousands of digits."""


def _whole_number(loader: Any, node: yaml.ScalarNode) -> int:
    value: int = loader.construct_yaml_int(node)
    if abs(value) >= LARGEST_NUMBER:
        raise ValueError("number too large")
    return value


Loader.add_constructor("tag:yaml.org,2002:int", _whole_number)

Origins = dict[str, str]
"""Dotted key -> where its value came from."""

LARGEST = 1 << 20
"""Bytes of a config or matrix."""

DEEPEST = 32
"""Levels of nesting. libyaml's composer recurses in C: 200,000 levels crash the process."""

MOST_KEYS = 10_000
"""Keys and items, aliases expanded: a few lines of anchors can expand to billions."""

UNREADABLE = (ArithmeticError, AttributeError, LookupError, ValueError)
"""Python errors that PyYAML lets through for an invalid date or number."""

MERGE_TAG = "tag:yaml.org,2002:merge"
TEXT_TAG = "tag:yaml.org,2002:str"


def read_file(path: Path, extended_at: str | None = None) -> str:
    """Return the text of a config, or of the shipped sample of that name.

    `extended_at`: the place (`file:line`) of the `extends` that names it.

    Raises:
        ConfigError: missing, a folder or device, too large, not readable, or not text.
    """
    asker = f", which {extended_at} extends" if extended_at else ""
    if path.suffix == ".py":
        hint = f"a program runs with: canary exec -- python {path}"
        raise ConfigError(f"{path}{asker} is not a config", hint, file=path)
    try:
        return content_of(path, LARGEST).decode("utf-8")
    except FileNotFoundError as error:
        sample = shipped(path)
        if sample is not None:
            return sample
        raise no_config(path, asker) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not text", "a config is a YAML file", file=path) from error
    except OSError as error:
        if path.is_dir():
            message = f"{path}{asker} is a folder"
            raise ConfigError(message, "name a YAML file in it", file=path) from error
        message = f"cannot read {path}{asker}: {error.strerror}"
        raise ConfigError(message, "check its name and permissions", file=path) from error
    except ValueError as error:
        raise ConfigError(
            f"{str(path)!r} is not a file name", "check the path", file=path
        ) from error


def no_config(path: Path, asker: str = "") -> ConfigError:
    """Return the error for a config file that is not there. It names the nearest file."""
    folder = path.parent
    names = [item.name for item in folder.glob("*.y*ml")] if folder.is_dir() else []
    names += SAMPLES if folder == Path(FOLDER) else ()
    near = nearest(path.name, names)
    hint = did_you_mean(near and folder / near, TO_START)
    return ConfigError(f"no config at {path}{asker}", hint, file=path)


def parse(text: str, file: Path) -> tuple[dict[str, Any], Origins]:
    """Return one file's values and their origins (`file:line`).

    Raises:
        ConfigError: malformed YAML, a duplicate key, an empty file, or no mapping at the top.
    """
    try:
        _check_depth(text, str(file))
        node = yaml.compose(text, Loader)
        if node is None:
            raise ConfigError(f"{file} is empty", TO_START, file=file)
        if not isinstance(node, yaml.MappingNode):
            raise ConfigError(f"{file} has no `key: value` lines", TO_START, file=file)
        origins = _Lines(str(file), numbered=True).of(node)
        values: dict[str, Any] = yaml.load(text, Loader)
    except yaml.YAMLError as error:
        message = _yaml_message(error, file)
        raise ConfigError(message, "correct that line", file=file) from error
    except UNREADABLE as error:
        message = f"{file} has an invalid date or number"
        raise ConfigError(message, "quote it, or correct it", file=file) from error
    return values, origins


def _check_depth(text: str, source: str) -> None:
    """Refuse deep nesting; the event stream is flat, so this check itself cannot recurse."""
    depth = 0
    for event in yaml.parse(text, Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > DEEPEST:
            mark = event.start_mark
            _refuse_depth(f"{source}:{mark.line + 1}" if mark else source, source)


def _refuse_depth(place: str, source: str) -> NoReturn:
    message = f"{place} nests more than {DEEPEST} levels"
    raise ConfigError(message, "flatten it; an anchor must not contain itself", file=source)


def _yaml_message(error: yaml.YAMLError, file: Path) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or " ".join(str(error).split())
    if mark is None:
        return f"{file} is not YAML: {problem}"
    return f"{file}:{mark.line + 1}:{mark.column + 1} is not YAML: {problem}"


@dataclass
class _Lines:
    """Finds the line of every key below a node in one walk that follows aliases and `<<`."""

    source: str
    numbered: bool
    seen: int = 0

    def of(self, node: yaml.Node, prefix: str = "", depth: int = 0) -> Origins:
        """Return `file:line` of each dotted key below the node. Raises ConfigError for a cycle."""
        self.seen += 1
        if depth > DEEPEST:
            _refuse_depth(self._place(node), self.source)
        if self.seen > MOST_KEYS:
            message = f"{self._place(node)} expands to more than {MOST_KEYS} values"
            raise ConfigError(message, "use fewer aliases", file=self.source)
        if isinstance(node, yaml.SequenceNode):
            below: Origins = {}
            for index, item in enumerate(node.value):
                below |= self.of(item, f"{prefix}{index}.", depth + 1)
            return below
        return self._of_mapping(node, prefix, depth) if isinstance(node, yaml.MappingNode) else {}

    def _of_mapping(self, node: yaml.MappingNode, prefix: str, depth: int) -> Origins:
        direct: Origins = {}
        merged: Origins = {}
        for key_node, value_node in node.value:
            if key_node.tag == MERGE_TAG:
                several = isinstance(value_node, yaml.SequenceNode)
                for part in value_node.value if several else [value_node]:
                    merged = self.of(part, prefix, depth + 1) | merged
                continue
            key = f"{prefix}{self._text_key(key_node)}"
            place = self._place(key_node)
            if key in direct:
                message = f"{place} repeats the key {key!r}"
                raise ConfigError(message, "keep one of them", file=self.source, key=key)
            direct[key] = place
            direct |= self.of(value_node, f"{key}.", depth + 1)
        return merged | direct

    def _text_key(self, node: yaml.Node) -> str:
        if node.tag != TEXT_TAG:
            shown = node.value if isinstance(node, yaml.ScalarNode) else "a list or mapping"
            message = f"{self._place(node)} has a key that is not text in YAML: {shown}"
            raise ConfigError(message, "quote it, or use a known key", file=self.source)
        return str(node.value)

    def _place(self, node: yaml.Node) -> str:
        return f"{self.source}:{node.start_mark.line + 1}" if self.numbered else self.source


def read_chain(
    path: Path, seen: tuple[Path, ...] = (), extended_at: str | None = None
) -> tuple[dict[str, Any], Origins]:
    """Return values and origins of a file merged over the file that it `extends`, recursively.

    Raises:
        ConfigError: as `read_file` and `parse`, and if files extend each other in a circle.
    """
    values, origins = parse(read_file(path, extended_at), path)
    place = path.resolve()
    if place in seen:
        circle = " -> ".join(item.name for item in (*seen, place))
        message = f"configs extend each other in a circle: {circle}"
        raise ConfigError(message, "remove one `extends`", file=path, key="extends")
    below = values.pop("extends", None)
    line = origins.pop("extends", str(path))
    if below is None:
        return values, origins
    if not isinstance(below, str) or not below:
        message = f"extends in {line} must be a file name, got {below!r}"
        raise ConfigError(message, "for example `extends: base.yaml`", file=path, key="extends")
    base, base_origins = read_chain(path.parent / below, (*seen, place), line)
    merged = _laid_over(base, values, base_origins)
    return merged, base_origins | origins


def _laid_over(
    base: dict[str, Any], top: dict[str, Any], origins: Origins, prefix: str = ""
) -> dict[str, Any]:
    """Merge mappings key by key; any other value in `top` replaces the one in `base`, whose origins
    are removed."""
    merged = dict(base)
    for key, value in top.items():
        below, dotted = merged.get(key), f"{prefix}{key}."
        if isinstance(below, dict) and isinstance(value, dict):
            merged[key] = _laid_over(below, value, origins, dotted)
            continue
        merged[key] = value
        for old in [name for name in origins if f"{name}.".startswith(dotted)]:
            del origins[old]
    return merged


def apply_overrides(
    values: dict[str, Any], origins: Origins, overrides: Sequence[str]
) -> tuple[dict[str, Any], Origins]:
    """Apply `a.b=c` settings to the values; each right side is read as YAML.

    Raises:
        ConfigError: a setting without `=`, or with a value that is not YAML.
    """
    for setting in overrides:
        key, equals, text = setting.partition("=")
        parts = key.strip().split(".")
        if not equals or not all(parts):
            message = f"--set {setting} is not key=value"
            raise ConfigError(message, "for example --set max_steps=20")
        value, places = _setting_value(setting, text, ".".join(parts))
        for part in reversed(parts):
            value = {part: value}
        origins = dict(origins)
        values = _laid_over(values, value, origins)
        made = {".".join(parts[:depth]): "--set" for depth in range(1, len(parts) + 1)}
        origins = made | origins | places
    return values, origins


def _setting_value(setting: str, text: str, key: str) -> tuple[Any, Origins]:
    try:
        _check_depth(text, "--set")
        node = yaml.compose(text, Loader)
        places = {} if node is None else _Lines("--set", numbered=False).of(node, f"{key}.")
        return yaml.load(text, Loader), places
    except (yaml.YAMLError, *UNREADABLE) as error:
        message = f"--set {setting}: the value is not YAML"
        raise ConfigError(message, "quote special characters", key=key) from error
