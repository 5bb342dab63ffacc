"""JSON files with metrics: `{name: {step: value}}`, or a list of rows; a Trainer's state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from canary.errors import InputError
from canary.imports.entries import Entry, Telling, as_value, number_in, shortened
from canary.imports.files import Found
from canary.imports.readers.jsonl import parsed
from canary.imports.readers.rows import entry_of

ROW_LISTS = ("log_history", "history", "rows", "logs", "metrics", "data")
"""Keys of an object below which a list of rows may stand."""
STATE = "trainer_state.json"
"""Name of the state that transformers' Trainer writes; its rows are in `log_history`."""
LARGEST_SNIFFED = 8 << 20
"""Bytes of a file that is parsed to find out whether it holds metrics."""


def fits(file: Found) -> bool:
    """Whether a file has one of the known shapes. A large one is judged by its name alone."""
    if file.path.suffix != ".json" or is_state(file):
        return False
    if file.size > LARGEST_SNIFFED:
        return True
    try:
        return shape_of(parsed(file.content())) != ""
    except (InputError, ValueError):
        return True  # The reader says what is wrong with it.


def is_state(file: Found) -> bool:
    """Whether a file has the name of a Trainer's state."""
    return file.base == STATE


def shape_of(document: Any) -> str:
    """Return `rows`, or `steps` for values by name and step; empty for other files."""
    if _rows_in(document) is not None:
        return "rows"
    if not isinstance(document, Mapping) or not document:
        return ""
    inner = [value for value in document.values() if isinstance(value, Mapping)]
    if inner and all(one and all(number_in(k) is not None for k in one) for one in inner):
        return "steps"
    return ""


def _rows_in(document: Any) -> list[Any] | None:
    if isinstance(document, list) and any(isinstance(row, Mapping) for row in document):
        return document
    if isinstance(document, Mapping):
        for key in ROW_LISTS:
            below = document.get(key)
            if isinstance(below, list) and any(isinstance(row, Mapping) for row in below):
                return below
    return None


def document_in(file: Found) -> Any:
    """Return a file's document.

    Raises:
        InputError: it cannot be read, is half written, or is not JSON.
    """
    content = file.content().removeprefix(b"\xef\xbb\xbf")
    if not content.strip():
        raise InputError(f"{file.name} is empty", "name the file that the training wrote")
    try:
        return parsed(content)
    except ValueError as error:
        why = getattr(error, "msg", None) or str(error)
        line = getattr(error, "lineno", None)
        place = file.name if line is None else f"{file.name}:{line}"
        raise InputError(
            f"{place} is not JSON: {shortened(why)}", "it may be half written; write it again"
        ) from error


def read(files: Sequence[Found], telling: Telling) -> Iterator[Entry]:
    """Yield the rows of the files, in order.

    Raises:
        InputError: a file is not JSON, or holds no metrics in a known shape.
    """
    for part, file in enumerate(files):
        document = document_in(file)
        shape = shape_of(document)
        if shape == "rows":
            yield from entries_of_rows(_rows_in(document) or [], telling, file, part)
        elif shape == "steps":
            yield from _of_steps(document, telling, file, part)
        else:
            raise InputError(
                f"{file.name} holds no metrics: expected rows or {{name: {{step: value}}}}",
                "name the file that has them",
            )


def entries_of_rows(rows: list[Any], telling: Telling, file: Found, part: int) -> Iterator[Entry]:
    """Yield the rows of a list."""
    for number, row in enumerate(rows, 1):
        if isinstance(row, Mapping):
            yield entry_of(row, telling, file.name, part=part)
        else:
            telling.tell(f"item {number} of the list is not a row and was left out", file.name)


def _of_steps(document: Any, telling: Telling, file: Found, part: int) -> Iterator[Entry]:
    for name, by_step in document.items():
        if not isinstance(by_step, Mapping):
            telling.tell(f"`{shortened(name)}` has no values by step and was left out", file.name)
            continue
        for step, value in by_step.items():
            try:
                yield Entry(number_in(step), {name: as_value(value)}, None, part)
            except TypeError as error:
                telling.tell(f"`{shortened(name)}` is {error}, not a number", file.name)


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
    yield from entries_of_rows(newest[3], telling, newest[2], 0)
