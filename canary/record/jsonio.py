"""Strict JSON, and files that are replaced as a whole.

A number that is not finite is written as the string "nan", "inf" or "-inf"; standard JSON has no
such numbers, and a reader must never meet 0 in their place.
"""

from __future__ import annotations

import json
import math
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from canary.record.step_row import Row

DEEPEST = 50
"""Levels of a stranger's document; records of ours have 8."""
MOST_KEYS = 5_000
"""Of one mapping; operators and layers of the largest models are some hundreds."""
MOST_ITEMS = 100_000
"""Of one list; a list has an item a step."""
MOST_VALUES = 500_000
"""Of a whole document."""

NON_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def to_strict(value: Any) -> Any:
    """Returns `value` with every non-finite float replaced by its name, ready for strict JSON."""
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")
    if isinstance(value, Mapping):
        return {str(key): to_strict(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [to_strict(item) for item in value]
    if value is None or isinstance(value, str | int | bool):
        return value
    return str(value)


def number(value: Any) -> Any:
    """Reads one value back: the names of non-finite numbers become those numbers."""
    return NON_FINITE.get(value, value) if isinstance(value, str) else value


SHOWN = {"nan": "NaN", "inf": "Inf", "-inf": "-Inf"}


def shown(text: str) -> str:
    """A number's text as people read it: those that are not finite have one name each."""
    return SHOWN.get(text, text)


def dumps(value: Any, indent: int | None = None) -> str:
    """Serialises to strict JSON."""
    try:
        # Most of what is written, a row a step, is strict as it stands.
        return json.dumps(value, indent=indent, allow_nan=False, ensure_ascii=False)
    except (TypeError, ValueError):
        return json.dumps(to_strict(value), indent=indent, allow_nan=False, ensure_ascii=False)


def _refuse(name: str) -> float:
    raise ValueError(f"{name} is not valid JSON")


def loads(text: str | bytes) -> Any:
    """Parses strict JSON; a bare NaN or Infinity raises ValueError, and so does endless nesting."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except RecursionError as error:
        raise ValueError("nests too deep") from error


def check_bounds(document: Any) -> None:
    """ValueError for a document that no record can be: too deep, too many values, or texts that
    cannot be written. Level by level: whoever reads it after this may recurse."""
    level, depth, seen = [document], 0, 0
    while level:
        depth += 1
        seen += len(level)
        if depth > DEEPEST:
            raise ValueError(f"nests more than {DEEPEST} levels")
        if seen > MOST_VALUES:
            raise ValueError(f"holds more than {MOST_VALUES} values")
        level = [below for value in level for below in _below(value)]


def _below(value: Any) -> Iterable[Any]:
    """What one value of a document holds."""
    if isinstance(value, dict):
        if len(value) > MOST_KEYS:
            raise ValueError(f"holds a mapping of more than {MOST_KEYS} keys")
        for key in value:
            _check_text(key)
        return value.values()
    if isinstance(value, list):
        if len(value) > MOST_ITEMS:
            raise ValueError(f"holds a list of more than {MOST_ITEMS} items")
        return value
    if isinstance(value, str):
        _check_text(value)
    return ()


def _check_text(text: str) -> None:
    if not text.isascii() and re.search("[\ud800-\udfff]", text):
        raise ValueError("holds half of a character, which cannot be written")


def replace_file(path: Path, text: str) -> None:
    """Writes `text` to `path` so that a reader sees either the old content or the new one."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as stream:
            stream.write(text)
        # mkstemp makes files private; a record is for everyone who may read the folder.
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def rows_since(path: Path, offset: int) -> tuple[list[Row], int]:
    """Rows that were appended after `offset` bytes, and the offset after them. A line that is still
    being written waits for the next look."""
    if not path.exists():
        return [], offset
    with path.open("rb") as stream:
        stream.seek(offset)
        text = stream.read()
    whole = text[: text.rfind(b"\n") + 1]
    return [loads(line) for line in whole.splitlines() if line.strip()], offset + len(whole)


def read_rows(path: Path) -> Iterator[dict[str, Any]]:
    """Yields the rows of a JSON-lines file; a last line cut off by a crash is left out."""
    if not path.exists():
        return
    with path.open("rb") as stream:
        for line in stream:
            if not line.endswith(b"\n"):
                return
            row = loads(line)
            if isinstance(row, dict):
                yield row
