"""JSON files with metrics: `{name: {step: value}}`, `{name: [values]}`, a list of rows, or the
`trainer_state.json` of transformers' Trainer, whose rows are in `log_history`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from canary.errors import InputError
from canary.imports.entries import Entry, Telling, number_in, shortened
from canary.imports.files import Found
from canary.imports.readers.jsonl import Document
from canary.imports.readers.rows import entry_of

ROW_LISTS = ("log_history", "history", "rows", "logs", "metrics", "data")
"""Keys of an object below which a list of rows may stand."""
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
        return shape_of(Document().parse(file.content())) != ""
    except (InputError, ValueError):
        return True  # The reader says what is wrong with it.


def shape_of(document: Any) -> str:
    """Return `rows`, `steps` (by name and step) or `columns` (by name); empty for other files."""
    if _rows_in(document) is not None:
        return "rows"
    if not isinstance(document, Mapping) or not document:
        return ""
    inner = [value for value in document.values() if isinstance(value, Mapping)]
    if inner and all(one and all(number_in(k) is not None for k in one) for one in inner):
        return "steps"
    lists = [value for value in document.values() if isinstance(value, list)]
    if lists and any(any(isinstance(item, int | float) for item in one) for one in lists):
        return "columns"
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


def document_in(file: Found, telling: Telling) -> Any:
    """Return a file's document; repeated keys are told.

    Raises:
        InputError: it cannot be read, is half written, or is not JSON.
    """
    parser = Document()
    content = file.content().removeprefix(b"\xef\xbb\xbf")
    if not content.strip():
        raise InputError(f"{file.name} is empty", "name the file that the training wrote")
    try:
        document = parser.parse(content)
    except ValueError as error:
        why = getattr(error, "msg", None) or str(error)
        line = getattr(error, "lineno", None)
        place = file.name if line is None else f"{file.name}:{line}"
        raise InputError(
            f"{place} is not JSON: {shortened(why)}", "it may be half written; write it again"
        ) from error
    parser.tell_repeated(file, telling)
    return document


def read(file: Found, telling: Telling) -> Iterator[Entry]:
    """Yield the rows of a file, in order.

    Raises:
        InputError: it is not JSON, or holds no metrics in a known shape.
    """
    document = document_in(file, telling)
    shape = shape_of(document)
    if shape == "rows":
        yield from entries_of_rows(_rows_in(document) or [], telling, file)
    elif shape == "steps":
        yield from _of_steps(document, telling, file)
    elif shape == "columns":
        yield from _of_columns(document, telling, file)
    else:
        raise InputError(
            f"{file.name} holds no metrics: expected a list of rows, {{name: {{step: value}}}} "
            "or {name: [values]}",
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


def _of_columns(document: Any, telling: Telling, file: Found) -> Iterator[Entry]:
    columns = {name: values for name, values in document.items() if isinstance(values, list)}
    lengths = {len(values) for values in columns.values()}
    for name in document.keys() - columns.keys():
        telling.tell(f"`{shortened(name)}` is not a list of values and was left out", file.name)
    if len(lengths) > 1:
        telling.tell("the lists have different lengths: they are aligned at the first", file.name)
    for place in range(max(lengths, default=0)):
        columns = {name: values for name, values in columns.items() if place < len(values)}
        row = {name: values[place] for name, values in columns.items()}
        yield entry_of(row, telling, file.name)


def read_states(files: Sequence[Found], telling: Telling) -> Iterator[Entry]:
    """Yield the rows of the newest state: each checkpoint repeats those before it.

    Raises:
        InputError: a file is no such state.
    """
    states = []
    for file in files:
        document = document_in(file, telling)
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
