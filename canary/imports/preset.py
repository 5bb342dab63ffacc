"""Presets: how a framework names its metrics. Each is a YAML file that a user can copy."""

from __future__ import annotations

import fnmatch
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from canary.config.load import KIND_MESSAGES
from canary.config.source import parse
from canary.errors import ConfigError, InputError, did_you_mean, nearest, printable
from canary.record.jsonio import open_regular

FOLDER = Path(__file__).parent / "presets"
LARGEST = 1 << 20
LONGEST_PATTERN = 2_000
MOST_PATTERNS = 20
MOST_METRICS = 200
LEAST_KNOWN = 3
"""Metrics of a run that a preset must know to be chosen without being named."""
GROUPS = ("step", "pairs", "key", "value", "json", "prefix")
"""Groups of a console pattern that are no metrics."""
NO_PRESET = "none"


class Strict(BaseModel):
    """Frozen; refuses unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Name(Strict):
    """One name in the source, or a shell pattern of names, and what makes its unit ours."""

    name: str | None = Field(None, min_length=1, max_length=300)
    glob: str | None = Field(None, min_length=1, max_length=300)
    scale: float = 1.0
    """The value times this has our unit."""

    @model_validator(mode="after")
    def _one_of_both(self) -> Name:
        if (self.name is None) == (self.glob is None):
            raise ValueError("give `name` or `glob`")
        if not self.scale:
            raise ValueError("`scale` must not be 0")
        return self

    def first_in(self, names: Iterable[str]) -> str | None:
        """Return the first of the names that it means."""
        if self.name is not None:
            return self.name if self.name in set(names) else None
        assert self.glob is not None
        return min(fnmatch.filter(names, self.glob), default=None)


class Leaf(Strict):
    """Where the framework leaves its metrics in one format."""

    format: str
    where: str = ""


class Console(Strict):
    """How lines on the console are read. Colours are removed first."""

    line: str = Field(min_length=1, max_length=LONGEST_PATTERN)
    """Searched in each line. Groups: `step`; `pairs`, text that `pair` reads; `json`, an object;
    any other group is a metric of that name. A line with a step alone is a header."""
    pair: str | None = Field(None, max_length=LONGEST_PATTERN)
    """Finds each `key` and `value` in the group `pairs`."""
    prefix: str = ""
    """Put before each name."""
    with_last: bool = False
    """Where lines have no step: whether it belongs to the line before, such as an evaluation."""

    @field_validator("line", "pair")
    @classmethod
    def _compiles(cls, pattern: str | None) -> str | None:
        try:
            re.compile(pattern or "")
        except (re.error, RecursionError, OverflowError) as error:
            raise ValueError(f"is not a regular expression: {error}") from error
        return pattern


class RowKind(Strict):
    """Rows that have the field `has`: their names that match `names` get a prefix, because rows of
    another process use the same names."""

    has: str
    names: str
    prefix: str


Texts = tuple[str, ...]
OneName = Annotated[
    Name, BeforeValidator(lambda value: {"name": value} if isinstance(value, str) else value)
]


class Preset(Strict):
    """A framework's names. Times in seconds, memory in bytes, shares from 0 to 1."""

    framework: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")
    repository: str = ""
    version: str = ""
    """Where and in which version the names were read."""
    commit: str | None = None
    files: Texts = ()
    """Files of the repository in which they were read."""
    extends: str | None = None
    """A shipped preset: what this one lacks comes from there."""
    leaves: tuple[Leaf, ...] = ()
    step: Texts = ()
    """Names of the step among the values, the first that a row has."""
    inside: str | None = None
    """The metrics stand in an object below this key."""
    prefixes: Texts = ("",)
    """What a backend puts before a name, such as `train/`."""
    metrics: dict[str, tuple[OneName, ...]] = Field(default_factory=dict, max_length=MOST_METRICS)
    """Our name -> names in the source; the first that the run has counts."""
    other_axis: Texts = ()
    """Names whose step is not the training step, such as seconds. They are left out."""
    row_kinds: tuple[RowKind, ...] = ()
    null_is_nan: bool = False
    """The writer turns numbers that are not finite into null."""
    console: tuple[Console, ...] = Field((), max_length=MOST_PATTERNS)
    notes: Texts = ()
    """What a reader of these metrics must know."""

    @property
    def shown(self) -> str:
        """Return framework and version."""
        return f"{self.framework} {self.version}".strip()

    def digest(self) -> str:
        """Return a hash of how it reads metrics: texts for people do not count."""
        texts = {"repository", "version", "commit", "files", "leaves", "notes", "extends"}
        return hashlib.sha256(self.model_dump_json(exclude=texts).encode()).hexdigest()

    def inner(self, name: str) -> str:
        """Return a name without the object that holds the metrics."""
        return name if self.inside is None else name.removeprefix(f"{self.inside}/")

    def names_in(self, names: Iterable[str]) -> dict[str, tuple[str, float]]:
        """Return our name -> the source's name and its scale, for the names that a run has."""
        given = list(names)
        found: dict[str, tuple[str, float]] = {}
        for ours, wanted in self.metrics.items():
            for prefix in self.prefixes:
                bare = {n.removeprefix(prefix): n for n in given if n.startswith(prefix)}
                for one in wanted:
                    first = one.first_in(bare)
                    if first is not None and ours not in found:
                        found[ours] = (bare[first], one.scale)
        return found


def shipped_names() -> list[str]:
    """Return the names of the shipped presets."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def preset_file(name: str) -> Path:
    """Return the file of a preset: a shipped name, or a path of a YAML file.

    Raises:
        InputError: there is none.
    """
    if name.lower().endswith((".yaml", ".yml")) or "/" in name:
        return Path(name)
    known = shipped_names()
    found = name.lower().replace("_", "-")
    if found not in known:
        near = did_you_mean(nearest(found, known), f"known are {', '.join(known)};")
        raise InputError(f"no preset {name!r}", f"{near} or name a YAML file")
    return FOLDER / f"{found}.yaml"


def is_shipped(name: str | None) -> bool:
    """Whether a preset is one of the canary's own."""
    return name is not None and preset_file(name).parent == FOLDER


def load_preset(name: str) -> Preset:
    """Load a preset by its name, or from a YAML file.

    Raises:
        InputError: there is none, or it cannot be read.
        ConfigError: it is no preset; names file and key.
    """
    file = preset_file(name)
    shown = Path(printable(str(file)))
    try:
        with open_regular(file, LARGEST) as stream:
            text = stream.read(LARGEST).decode("utf-8")
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise InputError(f"cannot read the preset {shown}: {why}", "name a YAML file") from error
    values, origins = parse(text, shown)
    try:
        preset = Preset.model_validate(values)
    except ValidationError as error:
        raise _wrong_key(error, origins, shown) from error
    return preset if preset.extends is None else _extended(preset, values)


shipped = cache(load_preset)
"""Returns a shipped preset."""


def _wrong_key(error: ValidationError, origins: Mapping[str, str], shown: Path) -> ConfigError:
    """Return the first thing that is wrong in a preset: its key, its line and what to write."""
    first = error.errors()[0]
    key = ".".join(str(part) for part in first["loc"])
    place = next((origins[k] for k in (key, key.split(".")[0]) if k in origins), str(shown))
    said = first["msg"].removeprefix("Value error, ")
    message = KIND_MESSAGES.get(first["type"], said[0].lower() + said[1:])
    hint = "docs/import.md has the keys of a preset, and an example"
    if first["type"] == "extra_forbidden":
        near = nearest(key, Preset.model_fields) if len(first["loc"]) == 1 else None
        return ConfigError(f"{key} in {place}: unknown key", did_you_mean(near, hint), file=shown)
    return ConfigError(f"{key} in {place}: {message}", hint, file=shown)


def _extended(preset: Preset, values: Mapping[str, Any]) -> Preset:
    """Fill a preset with what it lacks from the shipped one that it extends."""
    assert preset.extends is not None
    below = load_preset(preset_file(preset.extends).stem)
    metrics = {name: (*preset.metrics.get(name, ()), *more) for name, more in below.metrics.items()}
    missing = {
        key: getattr(below, key)
        for key in Preset.model_fields
        if key not in values and key not in ("framework", "repository", "version", "commit")
    }
    return preset.model_copy(update=missing | {"metrics": preset.metrics | metrics})


def preset_lines() -> list[str]:
    """Return one line per shipped preset."""
    found = [shipped(name) for name in shipped_names()]
    wide = max(len(one.framework) for one in found)
    return [
        f"{one.framework:<{wide}}  {one.version or '-':<24.24}  {len(one.metrics):>2} metrics  "
        f"{one.repository}"
        for one in found
    ]


def choose(names: Sequence[str]) -> tuple[Preset | None, str]:
    """Choose the shipped preset that knows the most of a run's metrics, and say why. If several
    know as many, the one that all of them extend is chosen, else none."""
    known = {
        name: len(shipped(name).names_in(map(shipped(name).inner, names)))
        for name in shipped_names()
    }
    most = max(known.values(), default=0)
    if most < LEAST_KNOWN:
        return None, f"no preset knows at least {LEAST_KNOWN} of the metrics"
    best = [name for name, count in known.items() if count == most]
    if len(best) == 1:
        return shipped(best[0]), "it knows the most metrics"
    below = {shipped(name).extends or name for name in best}
    if len(below) > 1:
        return None, f"several presets fit equally well ({', '.join(best)}): name one"
    return shipped(below.pop()), "presets that extend it know as many metrics"
