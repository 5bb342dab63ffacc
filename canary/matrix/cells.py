"""The cells of a matrix: axes multiplied, without what is excluded; and single ones."""

from __future__ import annotations

import hashlib
import itertools
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic.dataclasses import dataclass as checked

from canary.baseline.comparability import slug
from canary.config.source import Origins
from canary.errors import ConfigError, printable
from canary.matrix.document import MOST_CELLS, Choice, Count, MatrixFile, Text, Verb, Words
from canary.record import jsonio

LONGEST_NAME = 64
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""As for the name of a canary, which a cell gives its runs."""


@checked(frozen=True)
class Cell:
    """One canary of a matrix."""

    name: str
    """Unique in the matrix, and a name for folders."""
    verb: Verb
    config: Text
    settings: tuple[str, ...]
    """`key=value`, as for `--set`."""
    stack: Text = None
    ranks: Count = 1
    device: Text = None
    """Type of device; None: any."""
    arguments: Words = ()
    """More arguments of the verb."""
    command: Words = ()
    """Of `exec` and `check`: what they start."""

    def lacks(self) -> str:
        """Return what is wrong with its command; empty if nothing is."""
        if self.config is None and not self.command:
            return "neither config nor command: give one"
        if self.command and self.verb not in ("exec", "check"):
            return f"a command, but its verb is {self.verb}: use verb: exec"
        return ""


KEYS = ("verb", "config", "stack", "ranks", "device", "arguments", "command")
"""Axes that are no key of a config."""


def cells_of(document: MatrixFile, origins: Origins, file: Path) -> tuple[Cell, ...]:
    """Return the cells in the order of the file.

    Raises:
        ConfigError: an axis, an exclude or a cell is wrong, or there are none or too many.
    """
    reader = _Reader(document, origins, file)
    choices = [("matrix", one) for one in reader.multiplied()]
    choices += [(f"cells.{number}", one) for number, one in enumerate(document.cells)]
    if not choices:
        raise ConfigError(f"{file} has no cells", "give `matrix:` or `cells:`", file=file)
    if len(choices) > MOST_CELLS:
        message = f"{file} has {len(choices)} cells, more than {MOST_CELLS}"
        raise ConfigError(message, "split it", file=file)
    made: dict[str, Cell] = {}  # By drawer: the history's names are of lower case.
    for where, choice in choices:
        cell = reader.cell(where, choice, taken=made)
        made[slug(cell.name)] = cell
    return tuple(made.values())


@dataclass
class _Reader:
    document: MatrixFile
    origins: Origins
    file: Path

    def _error(
        self, key: str, message: str, hint: str, *, what: str = "", within: str = ""
    ) -> ConfigError:
        place = _place(self.origins, key) or _place(self.origins, within) or str(self.file)
        return ConfigError(f"{what or key} in {place} {message}", hint, file=self.file, key=key)

    def multiplied(self) -> list[Choice]:
        """Return the combinations of the axes, as a workflow's matrix does."""
        axes = dict(self.document.matrix)
        excluded = axes.pop("exclude", [])
        if not isinstance(excluded, list) or not all(isinstance(one, dict) for one in excluded):
            hint = "write exclude: [{axis: value}]"
            raise self._error("matrix.exclude", "is not a list of choices", hint)
        for name, values in axes.items():
            if not isinstance(values, list) or not values:
                raise self._error(f"matrix.{name}", "is not a list of values", "write [a, b]")
            if any(isinstance(one, dict) for one in values):
                hint = "write exclude: [...], and single cells under `cells:`"
                raise self._error(f"matrix.{name}", "is not an axis", hint)
        count = math.prod(map(len, axes.values()))
        if count > MOST_CELLS:
            raise self._error("matrix", f"has {count} cells, more than {MOST_CELLS}", "split it")
        product = itertools.product(*axes.values()) if axes else ()
        found = [dict(zip(axes, values, strict=True)) for values in product]
        for at, one in enumerate(excluded):
            unknown = sorted({*one} - {*axes})
            if unknown:
                key = f"matrix.exclude.{at}.{unknown[0]}"
                raise self._error(key, "is not an axis of this matrix", f"use {', '.join(axes)}")
            if not any(one.items() <= choice.items() for choice in found):
                raise self._error(f"matrix.exclude.{at}", "fits no cell", "look at its values")
        return [
            choice for choice in found if not any(one.items() <= choice.items() for one in excluded)
        ]

    def cell(self, where: str, choice: Choice, taken: Mapping[str, Cell]) -> Cell:
        """Return the cell of a choice, which the key `where` describes. `taken`: the cells before,
        by slug."""
        values = dict(choice)
        named = values.pop("name", "")
        name = str(named or _name(choice))
        what = f"cell {printable(name)[:LONGEST_NAME]}"
        error = partial(self._error, what=what, within=where)
        if not isinstance(named, str):
            raise error(f"{where}.name", "has a name that is not text", f'write name: "{named}"')
        if not NAME.fullmatch(name):
            hint = f"use letters, digits, dots, dashes and underscores, at most {LONGEST_NAME}"
            raise error(f"{where}.name", "has a name that no folder can have", hint)
        if slug(name) in taken:
            raise error(f"{where}.name", "has the same name as another", "give one a `name`")
        own: dict[str, Any] = {"verb": self.document.verb, "config": None}
        own |= {key: values.pop(key) for key in KEYS if key in values}
        settings = tuple(
            f"{key}={value if isinstance(value, str) else jsonio.dumps(value)}"
            for key, value in values.items()
        )
        try:
            cell = Cell(name=name, settings=settings, **own)
        except ValidationError as wrong:
            first = wrong.errors()[0]
            said = first["msg"].removeprefix("Value error, ")
            key = first["loc"][0]
            message = f"has {key}: {said[:1].lower()}{said[1:]}"
            raise error(f"{where}.{key}", message, "see docs/matrix.md") from wrong
        if lack := cell.lacks():
            raise error(f"{where}.config", f"has {lack}", "see docs/matrix.md")
        if cell.stack is not None and cell.stack not in self.document.stacks:
            message = f"has the unknown stack {cell.stack!r}"
            raise error(f"{where}.stack", message, "define it under `stacks:`")
        return cell


def _place(origins: Origins, key: str) -> str | None:
    """Return where a key stands; of an item of a list, where the first of its keys does."""
    inside = (place for one, place in origins.items() if one.startswith(f"{key}."))
    return origins.get(key) or next(inside, None)


def _name(choice: Mapping[str, Any]) -> str:
    """Return a name that tells what was chosen; a long one ends with a hash."""
    parts = []
    for key, value in choice.items():
        text = Path(str(value)).stem if key == "config" else str(value)
        if isinstance(value, bool) or value is None:
            text = f"{key.rpartition('.')[2]}-{text}"
        if key == "ranks":
            text = f"{value}ranks"
        parts.append(re.sub(r"[^A-Za-z0-9._]", "-", text))
    name = "-".join(filter(None, parts)).strip("-.").lower() or "cell"
    if len(name) <= LONGEST_NAME:
        return name
    mark = hashlib.sha256(jsonio.dumps(dict(choice)).encode()).hexdigest()[:8]
    return f"{name[: LONGEST_NAME - 9]}-{mark}"
