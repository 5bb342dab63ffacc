"""JSON lines, and JSON files with metrics: `{name: {step: value}}`, `{name: [values]}`, a list of
rows, or the `trainer_state.json` of transformers, whose rows are in `log_history`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from canary.errors import InputError
from canary.imports.entries import Ending, Entry, Telling, entry_of, number_in, shortened
from canary.imports.files import LARGEST_TEXT, LONGEST_LINE, MOST_LINES, Found
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


def has_lines(file: Found) -> bool:
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


def read_lines(file: Found, telling: Telling) -> Iterator[Entry]:
    """Yield the rows of JSON lines, in order. Raises InputError if the file is too large."""
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
