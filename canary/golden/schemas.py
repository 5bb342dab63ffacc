"""The schemas of golden files, and which one a file has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from canary.errors import InputError, MachineError, RecordError, UsageError, nearest
from canary.golden.formats import canary as canary_format
from canary.golden.formats import megatron, nemo, torchtitan, trl
from canary.golden.formats.schema import NotThis, Schema
from canary.golden.model import Golden
from canary.record import jsonio

SCHEMAS: dict[str, Schema] = {
    one.name: one
    for one in (
        canary_format.SCHEMA,
        megatron.SCHEMA,
        torchtitan.SCHEMA,
        nemo.SCHEMA,
        trl.SCHEMA,
    )
}
OF_NONE = f"it has the format of none of {', '.join(SCHEMAS)}"
LARGEST = 16 << 20
"""Bytes of a golden file."""
MOST_STEPS = 100_000
"""Values of one metric."""


def schema_named(name: str) -> Schema:
    """Return a schema.

    Raises:
        UsageError: there is none of this name.
    """
    if name in SCHEMAS:
        return SCHEMAS[name]
    near = nearest(name, SCHEMAS)
    hint = f"did you mean {near!r}?" if near else f"use one of {', '.join(SCHEMAS)}"
    raise UsageError(f"unknown format {name!r} of golden files", hint)


def read_golden(path: Path) -> Golden:
    """Read a golden file of any schema.

    Raises:
        InputError: it is missing.
        RecordError: it cannot be read, is of no known schema, or holds what none may hold.
    """
    try:
        content = jsonio.content_of(path, LARGEST)
    except FileNotFoundError as error:
        raise InputError(
            f"no golden file at {path}", "write one with: canary golden write RUN FILE"
        ) from error
    except OSError as error:
        raise RecordError(f"cannot read {path}: {error.strerror}") from error
    try:
        golden = _parsed(content)
    except NotThis as error:
        raise RecordError(f"{path} is not a golden file: {error}", _hint(error)) from error
    longest = max((len(one.series.steps) for one in golden.metrics.values()), default=0)
    if longest > MOST_STEPS:
        raise RecordError(f"{path} holds a metric of more than {MOST_STEPS} steps")
    if not longest:
        raise RecordError(f"{path} holds no values", "an empty golden file would pass every run")
    return golden


def _parsed(content: bytes) -> Golden:
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise NotThis("it is no text") from error
    if not text.lstrip().startswith(("{", "[")):
        if not torchtitan.LINE.match(text):
            raise NotThis(OF_NONE)
        return torchtitan.SCHEMA.read(text)
    document = _document(text)
    for schema in SCHEMAS.values():
        if schema.recognizes(document):
            return schema.read(document)
    raise NotThis(OF_NONE)


def _document(text: str) -> dict[str, Any]:
    """Return a JSON object; a bare NaN is refused as any other broken file."""
    try:
        document = jsonio.loads(text)
        if not isinstance(document, dict):
            raise NotThis("expected a JSON object")
        return document
    except ValueError as error:
        raise NotThis(str(error)) from error


def _hint(error: NotThis) -> str | None:
    if "is not valid JSON" in str(error):
        return "a golden file holds finite numbers only"
    return None


def write_golden(path: Path, text: str) -> None:
    """Replace a golden file as a whole.

    Raises:
        MachineError: it cannot be written, or a link leads out of its folder.
    """
    target = inside_its_folder(path)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        jsonio.replace_file(target, text)
    except OSError as error:
        raise MachineError(f"cannot write {path}: {error.strerror or error}") from error


def inside_its_folder(path: Path) -> Path:
    """Return the file that a path leads to.

    Raises:
        MachineError: it is a link out of its folder, or not a regular file.
    """
    if path.is_symlink():
        target = path.resolve()
        if target.parent != path.parent.resolve():
            raise MachineError(f"{path} is a link out of its folder", "name the file itself")
        path = target
    if path.exists() and not path.is_file():
        raise MachineError(f"{path} is not a regular file", "name a file")
    return path
