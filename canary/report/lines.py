"""Layout of all text for terminals: aligned columns, and lines that fit the width."""

from __future__ import annotations

import re
import shutil
import textwrap
from collections.abc import Collection, Sequence
from typing import TextIO

from canary.errors import cut

Cells = tuple[str, ...]

UNKNOWN_WIDTH = 80
NARROWEST = 40
"""In a terminal with fewer columns, the terminal wraps the lines."""
LONGEST_CELL = 24
"""If a table does not fit, its cells are cut to this before a column is dropped."""
SHORTEST_CELL = 8
BETWEEN = "  "
MARKED = re.compile(r" *(?:\d+\. |-> |- |do: )?")
"""The start of a line; its continuation lines are indented to the text after it."""


def terminal_width(stream: TextIO) -> int | None:
    """Return the columns of the terminal behind a stream, or None for a pipe or a file: their lines
    stay whole so that grep finds them. The variable `COLUMNS` overrides the terminal's answer."""
    if not stream.isatty():
        return None
    return max(NARROWEST, shutil.get_terminal_size((UNKNOWN_WIDTH, 24)).columns)


def wrapped(text: str, width: int | None, whole: Collection[str] = ()) -> str:
    """Return the text with long lines wrapped between words and a hanging indent; unchanged if
    `width` is None. A word longer than a line, such as a path, stays whole.

    `whole`: lines that stay whole, such as commands that people copy.
    """
    if width is None:
        return text
    lines = text.split("\n")
    return "\n".join(line if line.strip() in whole else _wrapped(line, width) for line in lines)


def _wrapped(line: str, width: int) -> str:
    if len(line) <= width:
        return line
    marked = MARKED.match(line)
    start = marked[0] if marked else ""
    hanging = len(start) if start.strip() else len(start) + 2
    return textwrap.fill(
        line,
        width,
        subsequent_indent=" " * hanging,
        break_long_words=False,
        break_on_hyphens=False,
    )


def aligned(lines: Sequence[Cells], *, right: bool = False) -> list[str]:
    """Return a table as lines of text. The first of `lines` holds the headings; `right` aligns all
    columns except the first to the right."""
    widths = _widths(lines)
    return [
        BETWEEN.join(
            cell.rjust(width) if right and place else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]


def fitting(lines: Sequence[Cells], width: int | None, least: Sequence[str] = ()) -> list[Cells]:
    """Return a table's cells, headings first, made to fit the width; unchanged if it is None.

    In this order: long cells are cut; the columns in `least` are dropped, the first one first; long
    names in the first column are cut; then the widest column is cut.
    """
    kept = list(lines)
    if width is None or _fits(kept, width):
        return kept
    kept = [(line[0], *(cut(cell, LONGEST_CELL) for cell in line[1:])) for line in kept]
    # An empty column is dropped first.
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
    """Return a table of figures as lines of text that fit the width, if there is one: names to the
    left, all else to the right. `least`: see `fitting`."""
    droppable = [heading for heading in least if heading in headings]
    return aligned(fitting([headings, *rows], width, droppable), right=True)


def with_names(lead: str, names: Sequence[str], tail: str, width: int) -> str:
    """Return one line: between `lead` and `tail` as many of the names as fit, maybe none."""
    for shown in range(len(names), 0, -1):
        more = ", ..." if shown < len(names) else ""
        line = f"{lead}: {', '.join(names[:shown])}{more} {tail}"
        if len(line) <= width:
            return line
    return f"{lead} {tail}"


def _widths(lines: Sequence[Cells]) -> list[int]:
    return [max(map(len, column)) for column in zip(*lines, strict=True)]


def _fits(lines: Sequence[Cells], width: int) -> bool:
    return sum(_widths(lines)) + len(BETWEEN) * (len(lines[0]) - 1) <= width
