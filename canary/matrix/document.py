"""The YAML of a matrix, as its author writes it."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from canary.config.source import Origins, parse, read_file
from canary.errors import ConfigError, did_you_mean, nearest

Verb = Literal["run", "check", "exec"]
MOST_CELLS = 10_000
Scalar = str | int | float | bool | None
Choice = dict[str, Any]
"""One value for some axes."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def _words(value: Any) -> tuple[str, ...]:
    """Return the words of a command line or of a list."""
    if not isinstance(value, str | list | tuple | None):
        raise ValueError("write a command line, or a list of words")
    words = shlex.split(value) if isinstance(value, str) else [*map(str, value or ())]
    if any("\0" in one for one in words):
        raise ValueError("a zero byte is in it")
    return tuple(words)


Text = Annotated[str | None, BeforeValidator(lambda value: None if value is None else str(value))]
Words = Annotated[tuple[str, ...], BeforeValidator(_words)]
Count = Annotated[int, Field(ge=1, le=64, strict=True)]


class Stack(_Strict):
    """An environment with packages of its own."""

    python: str = Field(description="Its Python, or a script that starts one, in a container too.")


class Local(_Strict):
    """Cells on this machine."""

    kind: Literal["local"] = "local"
    devices: Literal["auto", "cpu"] | list[int] = Field(
        "auto", description="GPUs to share, by number; `auto`: all, or the CPU without one."
    )
    cores: int = Field(1, ge=1, description="Cores of each rank that trains on the CPU.")
    at_once: int | None = Field(None, ge=1, description="Most cells at once; null: all that fit.")


Line = Annotated[str, Field(pattern=r"^[^\x00\r\n]*$")]


class Queued(_Strict):
    """Cells in the queue of a cluster, which shares this folder."""

    device: str = Field("gpu", description="`gpu`, `cpu`, or a type of GPU by its name there.")
    cores: int = Field(1, ge=1, description="Cores of a cell.")
    memory: float | None = Field(None, gt=0, description="GiB of a cell.")
    at_once: int | None = Field(None, ge=1, description="Most cells at once; null: all that fit.")
    longest_wait: float = Field(720, gt=0, description="Minutes that a cell may wait in the queue.")
    poll: float = Field(5, gt=0, description="Seconds between two questions to the queue.")
    late: float = Field(
        30, ge=0, description="Seconds to wait for the files of a job that is over."
    )


class Slurm(Queued):
    """Cells as jobs of Slurm."""

    kind: Literal["slurm"]
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    requeue: bool = Field(True, description="Start a cell again that was preempted.")
    options: dict[Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]*$")], Scalar] = Field(
        default_factory=dict, description="More options of sbatch."
    )


class Ray(Queued):
    """Cells as jobs of a Ray cluster."""

    kind: Literal["ray"]
    address: str = Field("http://127.0.0.1:8265", description="Of the cluster's dashboard.")


LauncherKeys = Local | Slurm | Ray
LAUNCHERS: dict[str, type[LauncherKeys]] = {"local": Local, "slurm": Slurm, "ray": Ray}
VARIABLE = r"^[A-Za-z_][A-Za-z0-9_]*$"
OF_SCRIPT = ("folder", "limit", "stopped", "dies", "child", "code", "IFS")
"""Variables of the script that runs a cell."""


def _with_kind(value: Any) -> dict[str, Any]:
    return {"kind": "local", **value} if isinstance(value, dict) else {"kind": value}


StackName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
"""Also the name of its folder."""


class MatrixFile(_Strict):
    """A matrix."""

    name: str = Field("matrix", min_length=1, max_length=80, pattern=r"^[\w .-]+$")
    verb: Verb = Field("run", description="What a cell does, unless it says otherwise.")
    matrix: dict[str, Any] = Field(
        default_factory=dict,
        description="Axes with their values, and `exclude`, as in a workflow.",
    )
    cells: list[Choice] = Field(default_factory=list, description="More cells, one by one.")
    stacks: dict[StackName, Stack] = Field(
        default_factory=dict, description="Environments by name."
    )
    history: Annotated[str, Field(min_length=1)] | None = Field(
        None, description="Folder with the history to compare with."
    )
    save: bool = Field(False, description="Store runs in the history that are not worse.")
    timeout: float = Field(60, gt=0, description="Minutes for a cell.")
    env: dict[Annotated[str, Field(pattern=VARIABLE)], Line] = Field(
        default_factory=dict, description="Variables of all cells."
    )
    launcher: Annotated[LauncherKeys, Field(discriminator="kind"), BeforeValidator(_with_kind)] = (
        Field(default_factory=Local)
    )

    @field_validator("env")
    @classmethod
    def _leaves_the_script(cls, value: dict[str, str]) -> dict[str, str]:
        taken = sorted({*value} & {*OF_SCRIPT})
        if taken:
            raise ValueError(f"{taken[0]} is used by the script that runs a cell")
        return value

    @model_validator(mode="after")
    def _saves_somewhere(self) -> Self:
        if self.save and self.history is None:
            raise ValueError("`save: true` needs `history: FOLDER`")
        return self


def read_matrix(path: Path) -> tuple[MatrixFile, Origins]:
    """Read a matrix and where each of its keys stands.

    Raises:
        ConfigError: one line that names file, key and remedy.
    """
    if not path.exists():
        raise ConfigError(f"no matrix at {path}", "see docs/matrix.md for an example", file=path)
    values, origins = parse(read_file(path), path)
    try:
        return MatrixFile.model_validate(values), origins
    except ValidationError as error:
        raise _first(error, origins, path) from error


def _first(error: ValidationError, origins: Origins, path: Path) -> ConfigError:
    """Return the first error as a line."""
    first = error.errors()[0]
    where = [*map(str, first["loc"])]
    kind = ""
    if where[:1] == ["launcher"] and where[1:2] and where[1] in LAUNCHERS:
        kind = where.pop(1)  # pydantic names the alternative, which is no key.
    while len(where) > 1 and ".".join(where) not in origins and first["type"] != "missing":
        where.pop()  # pydantic adds the alternatives of a key, which nobody wrote.
    key = ".".join(where)
    place = origins.get(key, str(path))
    hint = "see docs/matrix.md"
    if first["type"] == "union_tag_invalid":
        message = f"launcher.kind in {place} is unknown"
        return ConfigError(message, f"use {', '.join(LAUNCHERS)}", file=path, key="launcher.kind")
    model = LAUNCHERS.get(kind, MatrixFile)
    if first["type"] == "extra_forbidden":
        of = [one for one, keys in LAUNCHERS.items() if where[-1] in keys.model_fields]
        other = f"set launcher.kind: {of[0]}" if kind and of else hint
        near = None if kind and of else nearest(where[-1], model.model_fields)
        message = f"{place} has the unknown key {key!r}"
        return ConfigError(message, did_you_mean(near, other), file=path, key=key)
    field = model.model_fields.get(where[-1] if where else "")
    if where[:1] == ["env"] and first["type"] == "string_type":
        hint = f'write {where[-1]}: "{first["input"]}"'
        return ConfigError(f"{key} in {place} is not text", hint, file=path, key=key)
    said = first["msg"].removeprefix("Value error, ")
    said = said[:1].lower() + said[1:]
    hint = field.description or hint if field is not None else hint
    message = f"{key or 'the matrix'} in {place}: {said}"
    return ConfigError(message, hint.rstrip("."), file=path, key=key)
