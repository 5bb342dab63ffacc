"""CSV and TSV files with a header."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

from canary.errors import InputError
from canary.imports.entries import Entry, Telling, entry_of
from canary.imports.files import LARGEST_TEXT, LONGEST_LINE, MOST_LINES, Found
from canary.imports.readers.json_files import too_many_lines

SUFFIXES = (".csv", ".tsv")
MOST_COLUMNS = 10_000


def fits(file: Found) -> bool:
    """Whether a file has the ending of a table."""
    return file.path.suffix.lower() in SUFFIXES


def read(file: Found, telling: Telling) -> Iterator[Entry]:
    """Yield the rows of a file, in order. An empty cell has no value.

    Raises:
        InputError: it has no header, is not text, or is too large.
    """
    stream = file.open(LARGEST_TEXT)
    with io.TextIOWrapper(stream, "utf-8-sig", errors="strict", newline="") as text:
        csv.field_size_limit(LONGEST_LINE)
        line = 0
        try:
            first = text.readline(LONGEST_LINE)
            text.seek(0)
            sign = "\t" if file.path.suffix.lower() == ".tsv" else max(",;\t", key=first.count)
            reader = csv.reader(text, delimiter=sign, strict=True)
            names = [name.strip() for name in next(reader, [])]
            _check_header(names, file)
            for cells in reader:
                line = reader.line_num
                if line > MOST_LINES:
                    raise too_many_lines(file)
                if len(cells) == len(names):
                    row = {
                        name: cell.strip()
                        for name, cell in zip(names, cells, strict=True)
                        if cell.strip()
                    }
                    row.pop("", None)
                    yield entry_of(row, telling, file.name, line)
                elif cells:
                    what = f"the row has {len(cells)} cells, the header {len(names)}"
                    telling.tell(f"{what}: it was left out", file.name, line)
        except UnicodeDecodeError as error:
            raise InputError(f"{file.name} is not UTF-8 text", "write it as UTF-8") from error
        except csv.Error as error:
            raise InputError(f"{file.name}:{line + 1} is not CSV: {error}") from error


def _check_header(names: list[str], file: Found) -> None:
    """Raise InputError if the first line does not name the columns."""
    known = [name for name in names if name]
    if not known:
        what = "has no header" if file.size else "is empty"
        raise InputError(f"{file.name} {what}", "its first line must name the columns")
    if len(names) > MOST_COLUMNS:
        raise InputError(f"{file.name} has more than {MOST_COLUMNS:,} columns")
    if len({*known}) < len(known):
        raise InputError(f"{file.name} has two columns of one name", "give each its own name")
