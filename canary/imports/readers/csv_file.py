"""CSV and TSV files with a header, also those that pages of W&B and TensorBoard export."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from canary.errors import InputError
from canary.imports.axis import STEP_NAMES
from canary.imports.entries import Entry, Telling, entry_of, number_in, plain, shortened
from canary.imports.files import LONGEST_LINE, MOST_LINES, Found
from canary.imports.readers.json_files import too_many_lines

Column = tuple[str, str]
"""Run and metric. Columns of no run belong to all."""
OF_A_TAG = ["wall_time", "step", "value"]
"""The header of TensorBoard's "download CSV"."""
TAG = re.compile(r"^run[-_].*[-_]tag[-_](?P<tag>.+?)(?: ?\(\d+\))?\.csv$", re.IGNORECASE)
BETWEEN = " - "
BOUNDS = ("__MIN", "__MAX")
"""Endings of the columns that W&B adds to a metric: the range of the steps that it averaged."""


def columns_of(names: Sequence[str], file: Found) -> list[Column]:
    """Return run and metric of each column; an empty metric is not read.

    Raises:
        InputError: nothing says which metric it is, or what counts the steps.
    """
    if [plain(name) for name in names] == OF_A_TAG:
        found = TAG.match(file.base)
        if found is None:
            raise InputError(
                f"{file.name} has values, but its name does not say of which metric",
                "name it as TensorBoard does, such as run-mine_tag-train_loss.csv",
            )
        return [("", name) for name in names[:2]] + [("", found["tag"])]
    shared = names[0] if names else ""
    others = [name for name in names if name not in ("", shared)]
    if not others or BETWEEN in shared or any(BETWEEN not in name for name in others):
        return [("", name) for name in names]
    twice = next((name for name in others if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(
            f"{file.name} has two runs of one name: the column `{shortened(twice)}` stands twice",
            "give the runs different names in W&B, or export one of them",
        )
    found_columns = [_of_panel(name, names) if name != shared else ("", name) for name in names]
    if not any(plain(metric) in STEP_NAMES for _, metric in found_columns):
        raise InputError(
            f"{file.name} is an export of a W&B panel over `{shortened(shared)}`, without steps",
            "export it with Step as the x axis",
        )
    return found_columns


def _of_panel(name: str, names: Sequence[str]) -> Column:
    run, _, metric = name.rpartition(BETWEEN)
    bound = any(name.removesuffix(end) in names for end in BOUNDS if name.endswith(end))
    return run, "" if bound else metric


SUFFIXES = (".csv", ".tsv")
MOST_COLUMNS = 10_000
LINE_ENDS = re.compile(rb"\r\n?|\n")


def fits(file: Found) -> bool:
    """Whether a file has the ending of a table."""
    return file.path.suffix.lower() in SUFFIXES


def read(file: Found, telling: Telling) -> Iterator[Entry]:
    """Yield the rows of a file, in order. An empty cell has no value.

    Raises:
        InputError: it has no header, is no text, or is too large.
    """
    header = b""
    if file.skip:
        with replace(file, skip=0).text() as raw:
            header = raw.readline(LONGEST_LINE)
    with file.text() as raw:
        content = header + raw.read()
    text = io.TextIOWrapper(io.BytesIO(content), "utf-8-sig", errors="strict", newline="")
    csv.field_size_limit(LONGEST_LINE)
    reader = csv.reader(text, delimiter=_delimiter(file, content), strict=True)
    try:
        yield from _rows(reader, content, file, telling)
    except UnicodeDecodeError as error:
        raise InputError(f"{file.name} is not UTF-8 text", "write it as UTF-8") from error
    except csv.Error as error:
        why = "a quote is not closed" if "end of data" in str(error) else str(error)
        raise InputError(f"{file.name}:{reader.line_num} is not CSV: {why}") from error


def _rows(reader: Any, content: bytes, file: Found, telling: Telling) -> Iterator[Entry]:
    header = next(reader, None)
    if header is None or not any(cell.strip() for cell in header):
        what = "has no header" if content.strip() else "is empty"
        raise InputError(f"{file.name} {what}", "its first line must name the columns")
    names = _names(header, file, telling)
    columns, known = columns_of(names, file), frozenset(names)
    is_cut = not content.endswith((b"\n", b"\r"))
    cut_line = len(LINE_ENDS.findall(content)) + 1 if is_cut else 0
    for row in reader:
        line = reader.line_num
        if line > MOST_LINES:
            raise too_many_lines(file)
        _require_closed(row, len(names), reader, file)
        if _is_header(row, known):
            before, names = names, _names(row, file, telling)
            columns, known = columns_of(names, file), frozenset(names)
            with_more = f", with {len(names)} columns instead of {len(before)}"
            what = f"the header stands again{with_more if names != before else ''}"
            telling.tell(what, file.name, line)
            continue
        if not any(cell.strip() for cell in row):
            continue
        if line == cut_line and len(row) < len(names):
            telling.tell("the last line is half written and was left out", file.name, line)
            continue
        if line == cut_line:
            what = "the file does not end in a newline: check its newest value"
            telling.tell(what, file.name, line)
        yield from _entries(columns, row, line, file, telling)


def _require_closed(row: list[str], columns: int, reader: Any, file: Found) -> None:
    """Raise InputError if a cell holds lines that are rows: its quote was opened by mistake."""
    sign = reader.dialect.delimiter
    for cell in row:
        if "\n" in cell and any(line.count(sign) >= columns - 1 > 0 for line in cell.split("\n")):
            raise InputError(
                f"{file.name}:{reader.line_num}: a quoted cell holds whole rows",
                "close the quote of the line where it begins",
            )


def _delimiter(file: Found, content: bytes) -> str:
    """Return what separates the header's cells."""
    if file.path.suffix.lower() == ".tsv":
        return "\t"
    header = content[:LONGEST_LINE].split(b"\n", 1)[0]
    return max(",;\t", key=lambda sign: header.count(sign.encode()))


def _names(header: list[str], file: Found, telling: Telling) -> list[str]:
    if len(header) > MOST_COLUMNS:
        raise InputError(f"{file.name} has more than {MOST_COLUMNS:,} columns")
    names = [name.strip() for name in header]
    if all(number_in(name) is not None for name in names if name):
        raise InputError(
            f"{file.name} has numbers as its header", "its first line must name the columns"
        )
    for name in sorted(name for name, count in Counter(names).items() if count > 1 and name):
        telling.tell(f"the column `{shortened(name)}` stands twice: the last counts", file.name, 1)
    return names


def _is_header(row: list[str], names: frozenset[str]) -> bool:
    """Whether a row names columns: a resumed run often writes its header again."""
    cells = [cell.strip() for cell in row if cell.strip()]
    numbers = any(number_in(cell) is not None for cell in cells)
    return bool(cells) and not numbers and len(names.intersection(cells)) * 2 >= len(cells)


def _entries(
    columns: Sequence[Column], cells: list[str], line: int, file: Found, telling: Telling
) -> Iterator[Entry]:
    """Yield the row's values, one entry per run. Raises InputError for a number with a comma."""
    if len(cells) != len(columns):
        what = f"the row has {len(cells)} cells, the header {len(columns)}: it was left out"
        telling.tell(what, file.name, line)
        return
    by_run: dict[str, dict[str, str]] = {"": {}}
    for (run, name), cell in zip(columns, cells, strict=True):
        if name and (text := cell.strip()):
            by_run.setdefault(run, {})[name] = text
    shared = by_run.pop("")
    if not any(run for run, _ in columns):
        yield entry_of(shared, telling, file.name, line)
    for run, row in by_run.items():
        yield entry_of(shared | row, telling, file.name, line)._replace(run=run)
