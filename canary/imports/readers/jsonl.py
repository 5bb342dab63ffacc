"""JSON lines: one object per row."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from canary.errors import InputError
from canary.imports.entries import Entry, Telling
from canary.imports.files import LARGEST_TEXT, LONGEST_LINE, MOST_LINES, Found
from canary.imports.readers.rows import Ending, entry_of
from canary.record.jsonio import MOST_DIGITS

SUFFIXES = (".jsonl", ".ndjson")
LONGEST_SAID = 1_000
"""Bytes of a line that is not JSON."""


def _whole(digits: str) -> float:
    """Return a whole number; one beyond any float becomes infinite."""
    return int(digits) if len(digits) <= MOST_DIGITS else float(digits)


class Document:
    """Parses JSON as programs really write it: with NaN and Infinity. Counts repeated keys."""

    def __init__(self) -> None:
        self.repeated = 0

    def parse(self, text: bytes | str) -> Any:
        """Return the document. Raises ValueError if it is not JSON, or nests too deep."""
        try:
            return json.loads(text, parse_int=_whole, object_pairs_hook=self._mapping)
        except RecursionError as error:
            raise ValueError("it nests too deep") from error

    def tell_repeated(self, file: Found, telling: Telling) -> None:
        """Tell keys that an object has twice."""
        if self.repeated:
            what = "a key stands twice in one object: the last counts"
            telling.tell(what, file.name, count=self.repeated)

    def _mapping(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        self.repeated += len(pairs) - len(found)
        return found


def lines_of(file: Found, *, limited: bool = True) -> Iterator[tuple[int, bytes, bool]]:
    """Yield number, content and whether it is complete of each line that is not empty.

    Raises:
        InputError: the file is too large, a line is too long, or there are too many of a file that
            is `limited`.
    """
    with file.text(LARGEST_TEXT) as stream:
        number = 0
        while line := stream.readline(LONGEST_LINE + 1):
            number += 1
            if len(line) > LONGEST_LINE:
                raise InputError(
                    f"{file.name}:{number} has more than {LONGEST_LINE >> 20} MiB in one line",
                    "name a file with a row per line",
                )
            if limited and number > MOST_LINES:
                raise too_many_lines(file)
            if number == 1 and file.skip == 0:
                line = line.removeprefix(b"\xef\xbb\xbf")
            if line.strip():
                yield number, line, line.endswith(b"\n")


def too_many_lines(file: Found) -> InputError:
    """Return the error of a file with more than `MOST_LINES` lines."""
    return InputError(f"{file.name} has more than {MOST_LINES:,} lines", "name a shorter run")


def fits(file: Found) -> bool:
    """Whether a file looks like JSON lines: by its ending, or a whole object as its first line."""
    if file.path.suffix in SUFFIXES:
        return True
    lines = file.start().removeprefix(b"\xef\xbb\xbf").lstrip().split(b"\n", 2)
    first = lines[0]
    if not first.startswith(b"{"):
        return False
    if file.path.suffix == ".json" and not (len(lines) > 1 and lines[1].startswith(b"{")):
        return False
    try:
        return isinstance(Document().parse(first), dict)
    except ValueError:
        return False


def read(file: Found, telling: Telling) -> Iterator[Entry]:
    """Yield the rows of a file, in order.

    Raises:
        InputError: it is too large.
    """
    document, ending = Document(), Ending()
    for number, line, whole in lines_of(file):
        try:
            row = document.parse(line)
        except ValueError:
            ending.add(line[:LONGEST_SAID].decode("utf-8", "replace"))
            what = "the line is not JSON" if whole else "the last line is half written"
            telling.tell(f"{what} and was left out", file.name, number)
            continue
        if isinstance(row, dict):
            ending.clear()
            yield entry_of(row, telling, file.name, number)
        else:
            telling.tell("the line is not an object and was left out", file.name, number)
    telling.fail(ending.error())
    document.tell_repeated(file, telling)
