"""Strict JSON.

Standard JSON has no non-finite numbers. They are written as the strings "nan", "inf" and "-inf",
never as 0.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from canary.files import LARGEST as LARGEST
from canary.files import content_of as content_of
from canary.files import open_regular as open_regular
from canary.files import replace_file as replace_file

if TYPE_CHECKING:
    from canary.record.step_row import Row

DEEPEST = 50
"""Levels of an untrusted document; our records have 8."""
MOST_DIGITS = 300
MOST_KEYS = 5_000
"""In one mapping; the largest models have some hundreds of operators and layers."""
MOST_ITEMS = 100_000
"""In one list; lists have one item per step."""
MOST_VALUES = 500_000
"""In a whole document."""

LONGEST_ROW = 1 << 20
"""Bytes of one line; ours have some thousands."""

NON_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def to_strict(value: Any) -> Any:
    """Return `value` for strict JSON: non-finite floats become their names."""
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
    """Read one value back: names of non-finite numbers become numbers."""
    return NON_FINITE.get(value, value) if isinstance(value, str) else value


SHOWN = {"nan": "NaN", "inf": "Inf", "-inf": "-Inf"}


def numbers(value: Any) -> Any:
    """Return a nested value with its non-finite numbers, the reverse of `to_strict`."""
    if isinstance(value, dict):
        return {key: numbers(one) for key, one in value.items()}
    return [*map(numbers, value)] if isinstance(value, list) else number(value)


def shown(text: str) -> str:
    """Return a number's text for people: NaN, Inf and -Inf have one spelling."""
    return SHOWN.get(text, text)


def dumps(value: Any, indent: int | None = None) -> str:
    """Serialise to strict JSON."""
    try:
        # Most values, such as rows, are strict already.
        return json.dumps(value, indent=indent, allow_nan=False, ensure_ascii=False)
    except (TypeError, ValueError):
        return json.dumps(to_strict(value), indent=indent, allow_nan=False, ensure_ascii=False)


def _refuse(name: str) -> float:
    raise ValueError(f"{name} is not valid JSON")


def loads(text: str | bytes) -> Any:
    """Parse strict JSON.

    A bare NaN or Infinity, an integer beyond any float, or nesting too deep raises ValueError.
    """
    try:
        return json.loads(text, parse_constant=_refuse, parse_int=_whole)
    except RecursionError as error:
        raise ValueError("nests too deep") from error


def _whole(digits: str) -> int:
    if len(digits) > MOST_DIGITS:
        raise ValueError(f"holds a number of more than {MOST_DIGITS} digits")
    return int(digits)


def check_bounds(document: Any) -> None:
    """Raise ValueError if a document is too deep, too large, or has texts that cannot be written.
    It goes level by level, so that readers may recurse afterwards."""
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
    """Return the values inside a value of a document."""
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


def rows_since(path: Path, offset: int) -> tuple[list[Row], int]:
    """Return the rows after `offset` bytes and the offset after them. An unfinished line is left
    for the next call. A file that was written anew is read from its beginning.

    Raises:
        OSError: it is not a regular file.
        ValueError: a line is not strict JSON, or too long.
    """
    if not path.exists():
        return [], offset
    with open_regular(path, sys.maxsize) as stream:
        stream.seek(max(0, offset - 1))
        if offset and stream.read(1) != b"\n":
            offset = 0  # the training began its rows anew
        stream.seek(offset)
        text = stream.read()
    whole = text[: text.rfind(b"\n") + 1]
    if any(len(line) > LONGEST_ROW for line in text.splitlines()):
        raise ValueError(f"a row has more than {LONGEST_ROW >> 20} MiB")
    return [loads(line) for line in whole.splitlines() if line.strip()], offset + len(whole)


def read_rows(path: Path) -> list[Any]:
    """Return the rows of a JSON-lines file, without a last line that a crash cut off."""
    return list(rows_since(path, 0)[0])
