"""Lines of text: columns that line up, and what fits the width of a terminal. All text for
terminals is laid out here."""

from __future__ import annotations

import re
import shutil
import textwrap
from collections.abc import Sequence
from typing import TextIO

Cells = tuple[str, ...]

UNKNOWN_WIDTH = 80
NARROWEST = 40
"""Columns below which a terminal wraps lines by itself."""
LONGEST_CELL = 24
"""A cell of a table that does not fit is cut to this before a column is given up."""
SHORTEST_CELL = 8
BETWEEN = "  "
MARKED = re.compile(r" *(?:\d+\. |-> |- |do: )?")
"""What a line begins with; its further lines stand below what follows."""


def terminal_width(stream: TextIO) -> int | None:
    """Columns of the terminal behind a stream; None for a pipe or a file, where lines stay whole
    so that grep finds them. `COLUMNS` counts before what the terminal says."""
    if not stream.isatty():
        return None
    return max(NARROWEST, shutil.get_terminal_size((UNKNOWN_WIDTH, 24)).columns)


def wrapped(text: str, width: int | None) -> str:
    """A text with its long lines wrapped between words, each with a hanging indent; as it is
    without a width. A word longer than a line, as a path may be, stays whole."""
    if width is None:
        return text
    return "\n".join(_wrapped(line, width) for line in text.split("\n"))


def _wrapped(line: str, width: int) -> str:
    if len(line) <= width:
        return line
    begun = MARKED.match(line)
    start = begun[0] if begun else ""
    hanging = len(start) if start.strip() else len(start) + 2
    return textwrap.fill(
        line,
        width,
        subsequent_indent=" " * hanging,
        break_long_words=False,
        break_on_hyphens=False,
    )


def aligned(lines: Sequence[Cells], *, right: bool = False) -> list[str]:
    """A table's lines of cells, the headings first, as lines of text; with `right`, all columns
    but the first end at one place."""
    widths = _widths(lines)
    return [
        BETWEEN.join(
            cell.rjust(width) if right and place else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]


def fitting(lines: Sequence[Cells], width: int | None, least: Sequence[str] = ()) -> list[Cells]:
    """A table's lines of cells, the headings first, made to fit a width where there is one.

    Long cells are cut, then the columns named in `least` are given up in that order, then names of
    rows, which stand first, are cut as other cells are, then whatever is widest.
    """
    kept = list(lines)
    if width is None or _fits(kept, width):
        return kept
    kept = [(line[0], *(cut(cell, LONGEST_CELL) for cell in line[1:])) for line in kept]
    # An empty column tells least of all.
    for heading in sorted(
        least, key=lambda one: any(line[lines[0].index(one)] for line in lines[1:])
    ):
        if _fits(kept, width):
            return kept
        place = kept[0].index(heading)
        kept = [(*line[:place], *line[place + 1 :]) for line in kept]
    while not _fits(kept, width):
        widths = _widths(kept)
        values = [place for place in range(1, len(widths)) if widths[place] > SHORTEST_CELL]
        long_name = widths[0] > LONGEST_CELL or not values
        place = 0 if long_name else max(values, key=lambda place: widths[place])
        if widths[place] <= SHORTEST_CELL:
            break
        kept = [
            (*line[:place], cut(line[place], widths[place] - 1), *line[place + 1 :])
            for line in kept
        ]
    return kept


def figures(
    headings: Cells, rows: Sequence[Cells], width: int | None = None, least: Sequence[str] = ()
) -> list[str]:
    """A table of figures as lines of text, fit to a width where there is one: names to the left,
    all else to the right, and the headings above. `least`: as in `fitting`."""
    given_up = [heading for heading in least if heading in headings]
    return aligned(fitting([headings, *rows], width, given_up), right=True)


def cut(text: str, most: int) -> str:
    """A text of at most so many characters; `…` where something is missing."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def counted(count: int, what: str, names: Sequence[str], tail: str, width: int) -> str:
    """So many of something and their names in one line, with as many names as fit."""
    lead = f"{count} {what}: "
    for shown in range(len(names), 0, -1):
        more = ", ..." if shown < len(names) else ""
        line = f"{lead}{', '.join(names[:shown])}{more} {tail}"
        if len(line) <= width:
            return line
    return f"{count} {what} {tail}"


def _widths(lines: Sequence[Cells]) -> list[int]:
    return [max(map(len, column)) for column in zip(*lines, strict=True)]


def _fits(lines: Sequence[Cells], width: int) -> bool:
    return sum(_widths(lines)) + len(BETWEEN) * (len(lines[0]) - 1) <= width
