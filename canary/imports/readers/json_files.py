"""JSON lines, and JSON files with metrics: `{name: {step: value}}`, a list of rows, or an object
with such a list in `log_history`, as the `trainer_state.json` of transformers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from canary.errors import InputError
from canary.imports.entries import Ending, Entry, Telling, entry_of, number_in, shortened
from canary.imports.files import LARGEST_DOCUMENT, LARGEST_TEXT, LONGEST_LINE, MOST_LINES, Found
from canary.record.jsonio import MOST_DIGITS

SUFFIXES = (".jsonl", ".ndjson")
BOM = b"\xef\xbb\xbf"
LONGEST_SAID = 1_000
"""Bytes of a line that is not JSON."""


def _whole(digits: str) -> float:
    """Return a whole number; one beyond any float becomes infinite."""
    return int(digits) if len(digits) <= MOST_DIGITS else float(digits)


def parse_json(text: bytes | str) -> Any:
    """Return a document as programs really write it: with NaN and Infinity.

    Raises:
        ValueError: it is not JSON, or nests too deep.
    """
    try:
        return json.loads(text, parse_int=_whole)
    except RecursionError as error:
        raise ValueError("it nests too deep") from error


def lines_of(file: Found) -> Iterator[tuple[int, bytes, bool]]:
    """Yield number, content and whether it is complete of each line that is not empty.

    Raises:
        InputError: the file is too large, a line is too long, or there are too many.
    """
    with file.open(LARGEST_TEXT) as stream:
        number = 0
        while line := stream.readline(LONGEST_LINE + 1):
            number += 1
            if len(line) > LONGEST_LINE:
                raise InputError(
                    f"{file.name}:{number} has more than {LONGEST_LINE >> 20} MiB in one line",
                    "name a file with a row per line",
                )
            if number > MOST_LINES:
                raise too_many_lines(file)
            if number == 1:
                line = line.removeprefix(BOM)
            if line.strip():
                yield number, line, line.endswith(b"\n")


def too_many_lines(file: Found) -> InputError:
    """Return the error of a file with more than `MOST_LINES` lines."""
    return InputError(f"{file.name} has more than {MOST_LINES:,} lines", "name a shorter run")


def has_lines(file: Found) -> bool:
    """Whether a file looks like JSON lines: by its ending, or a whole object as its first line."""
    if file.path.suffix in SUFFIXES:
        return True
    first = file.start().removeprefix(BOM).lstrip().partition(b"\n")[0]
    if file.path.suffix == ".json" or not first.startswith(b"{"):
        return False
    try:
        return isinstance(parse_json(first), dict)
    except ValueError:
        return False


def read_lines(file: Found, telling: Telling) -> Iterator[Entry]:
    """Yield the rows of JSON lines, in order. Raises InputError if the file is too large."""
    ending = Ending()
    for number, line, whole in lines_of(file):
        try:
            row = parse_json(line)
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


LARGEST_SNIFFED = 8 << 20
"""Bytes of a file that is parsed to find out whether it holds metrics."""


def is_state(file: Found) -> bool:
    """Whether a file is named as the Trainer names its state."""
    return file.base == "trainer_state.json"


def fits(file: Found) -> bool:
    """Whether a file has one of the known shapes. A large one is judged by its name alone."""
    if file.path.suffix != ".json" or is_state(file):
        return False
    if file.size > LARGEST_SNIFFED:
        return True
    try:
        return shape_of(parse_json(_content(file))) != ""
    except (InputError, ValueError):
        return True  # The reader says what is wrong with it.


def shape_of(document: Any) -> str:
    """Return `rows`, or `steps` (by name and step); empty for other files."""
    if any(isinstance(row, Mapping) for row in _rows_in(document)):
        return "rows"
    inner = [*document.values()] if isinstance(document, Mapping) else []
    inner = [value for value in inner if isinstance(value, Mapping)]
    if inner and all(one and all(number_in(k) is not None for k in one) for one in inner):
        return "steps"
    return ""


def _rows_in(document: Any) -> list[Any]:
    found = document.get("log_history") if isinstance(document, Mapping) else document
    return found if isinstance(found, list) else []


def _content(file: Found) -> bytes:
    with file.open(LARGEST_DOCUMENT) as stream:
        return stream.read().removeprefix(BOM)


def document_in(file: Found) -> Any:
    """Return a file's document.

    Raises:
        InputError: it cannot be read, is half written, or is not JSON.
    """
    try:
        return parse_json(_content(file))
    except ValueError as error:
        line = getattr(error, "lineno", None)
        place = file.name if line is None else f"{file.name}:{line}"
        raise InputError(
            f"{place} is not JSON: {shortened(getattr(error, 'msg', error))}",
            "it may be half written; write it again",
        ) from error


def read(file: Found, telling: Telling) -> Iterator[Entry]:
    """Yield the rows of a file, in order.

    Raises:
        InputError: it is not JSON, or holds no metrics in a known shape.
    """
    document = document_in(file)
    shape = shape_of(document)
    if shape == "rows":
        yield from entries_of_rows(_rows_in(document), telling, file)
    elif shape == "steps":
        yield from _of_steps(document, telling, file)
    else:
        raise InputError(
            f"{file.name} holds no metrics: expected a list of rows, or {{name: {{step: value}}}}",
            "name the file that has them",
        )


def entries_of_rows(rows: list[Any], telling: Telling, file: Found) -> Iterator[Entry]:
    """Yield the rows of a list."""
    for number, row in enumerate(rows, 1):
        if isinstance(row, Mapping):
            yield entry_of(row, telling, file.name)
        else:
            telling.tell(f"item {number} of the list is not a row and was left out", file.name)


def _of_steps(document: Any, telling: Telling, file: Found) -> Iterator[Entry]:
    for name, by_step in document.items():
        if not isinstance(by_step, Mapping):
            telling.tell(f"`{shortened(name)}` has no values by step and was left out", file.name)
            continue
        for step, value in by_step.items():
            yield entry_of({name: value}, telling, file.name)._replace(step=number_in(step))


def read_states(files: Sequence[Found], telling: Telling) -> Iterator[Entry]:
    """Yield the rows of the newest state: each checkpoint repeats those before it.

    Raises:
        InputError: a file is no such state.
    """
    states = []
    for file in files:
        document = document_in(file)
        rows = document.get("log_history") if isinstance(document, Mapping) else None
        if not isinstance(rows, list):
            raise InputError(f"{file.name} has no list `log_history`", "name a Trainer's state")
        step = document.get("global_step")
        states.append((step if isinstance(step, int) else -1, len(rows), file, rows))
    newest = max(states, key=lambda state: state[:2])
    for state in states:
        if state is not newest:
            telling.tell(
                f"an earlier state than {newest[2].name}, so it was not read", state[2].name
            )
    yield from entries_of_rows(newest[3], telling, newest[2])
