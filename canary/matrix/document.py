"""The YAML of a matrix, as its author writes it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from canary.config.source import Origins, parse, read_file
from canary.errors import ConfigError, did_you_mean, nearest

Verb = Literal["run", "check", "ab", "calibrate", "exec"]
VERBS: tuple[Verb, ...] = ("run", "check", "ab", "calibrate", "exec")
OWN_AXES = ("config", "verb", "ref", "stack", "ranks", "device", "arguments", "command")
"""Axes that are no key of a config."""
MOST_CELLS = 10_000
Scalar = str | int | float | bool | None
Choice = dict[str, Any]
"""One value for some axes."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Stack(_Strict):
    """An environment with packages of its own."""

    python: str | None = Field(None, description="Its Python; null: the one that runs the matrix.")
    setup: str | None = Field(None, description="Command that installs it, once per matrix.")


class Local(_Strict):
    """Cells on this machine."""

    kind: Literal["local"] = "local"
    devices: Literal["auto", "cpu"] | list[int] = Field(
        "auto", description="GPUs to share, by number; `auto`: all, or the CPU without one."
    )
    cores: int = Field(1, ge=1, description="Cores of a cell that trains on the CPU.")
    at_once: int | None = Field(None, ge=1, description="Most cells at once; null: all that fit.")


StackName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
"""Also the name of its folder."""


class MatrixFile(_Strict):
    """A matrix."""

    name: str = Field("matrix", min_length=1, max_length=80, pattern=r"^[\w .-]+$")
    verb: Verb = Field("run", description="What a cell does, unless it says otherwise.")
    matrix: dict[str, Any] = Field(
        default_factory=dict,
        description="Axes with their values, and `include` and `exclude`, as in a workflow.",
    )
    cells: list[Choice] = Field(default_factory=list, description="More cells, one by one.")
    stacks: dict[StackName, Stack] = Field(
        default_factory=dict, description="Environments by name."
    )
    history: str | None = Field(None, description="Folder with the history to compare with.")
    save: bool = Field(False, description="Save runs that are not worse into the history.")
    timeout: float = Field(60, gt=0, description="Minutes for one try of a cell.")
    retries: int = Field(0, ge=0, le=10, description="More tries after the machine failed.")
    launcher: Local = Field(default_factory=Local)


def read_matrix(path: Path) -> tuple[MatrixFile, Origins]:
    """Read a matrix and where each of its keys stands.

    Raises:
        ConfigError: one line that names file, key and remedy.
    """
    values, origins = parse(read_file(path), path)
    try:
        return MatrixFile.model_validate(values), origins
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        place = origins.get(key, str(path))
        hint = "see docs/matrix.md"
        if first["type"] == "extra_forbidden":
            near = nearest(key.rpartition(".")[2], MatrixFile.model_fields)
            message = f"{place} has the unknown key {key!r}"
            raise ConfigError(message, did_you_mean(near, hint), file=path, key=key) from error
        message = f"{key or 'the matrix'} in {place}: {first['msg']}"
        raise ConfigError(message, hint, file=path, key=key) from error
