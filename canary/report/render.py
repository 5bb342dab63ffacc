"""Renders a comparison: templates fill in the view, JSON takes the comparison itself."""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

from canary.compare.report import Comparison
from canary.errors import MachineError, UsageError, printable
from canary.record.jsonio import replace_file
from canary.report.document import json_text
from canary.report.escape import (
    NOT_PRINTED,
    markdown_cell,
    markdown_code,
    on_lines,
    without_commands,
)
from canary.report.lines import aligned, counted, fitting, terminal_width, wrapped
from canary.report.view import STATUS_WORDS, Row, View, view_of

Format = Literal["text", "markdown", "json"]
FORMATS: tuple[Format, ...] = ("text", "markdown", "json")
TEMPLATES = Path(__file__).parents[1] / "templates"
COLUMNS = ("name", "baseline", "current", "change", "interval", "threshold", "detectable", "status")
HEADINGS = (
    "check",
    "baseline",
    "current",
    "change",
    "interval",
    "tolerance",
    "detectable",
    "status",
)


def environment(own: Mapping[str, str] | None = None) -> jinja2.Environment:
    """The templates' environment, sandboxed; a name that a template misspells is an error.

    `own`: templates of the user by name, found before ours of that name and able to extend them.
    """
    return _environment(tuple((own or {}).items()))


@functools.lru_cache(maxsize=4)
def _environment(own: tuple[tuple[str, str], ...]) -> jinja2.Environment:
    made = ImmutableSandboxedEnvironment(
        loader=jinja2.ChoiceLoader(
            [jinja2.DictLoader(dict(own)), jinja2.FileSystemLoader(TEMPLATES)]
        ),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    made.filters["cell"] = markdown_cell
    made.filters["code"] = markdown_code
    return made


LEAST = ("detectable", "interval", "tolerance")
"""Columns that a narrow terminal gives up, the first one first."""
LEGEND = {
    "change": "~ inside the noise",
    "tolerance": "tolerance: what may change",
    "detectable": "detectable: the smallest change seen in 4 of 5 cases",
}
"""What a column's signs mean, by its heading."""
INDENT = "  "
"""Before each line of a section."""
SEE_THEM = "(-v shows them)"
SEE_WHY = "(-v says why)"


def table(view: View) -> list[str]:
    """The checks as aligned lines of text: a heading, then groups of rows."""
    return _checks(view.rows, None)[0]


def _checks(rows: Sequence[Row], width: int | None) -> tuple[list[str], str]:
    """(the checks as lines that fit the width, what the signs in them mean)."""
    cells = [tuple(getattr(row, column) for column in COLUMNS) for row in rows]
    kept = fitting([HEADINGS, *((f"  {cell[0]}", *cell[1:]) for cell in cells)], width, LEAST)
    heading, *lines = aligned(kept)
    found = [heading]
    group = ""
    for row, line in zip(rows, lines, strict=True):
        if row.group != group:
            group = row.group
            found.append(group)
        found.append(line)
    return found, "; ".join(words for name, words in LEGEND.items() if name in kept[0])


def check_format(form: str) -> None:
    """UsageError for a format that is none of FORMATS."""
    if form not in FORMATS:
        raise UsageError(f"no format {form!r}", f"one of {', '.join(FORMATS)}")


def render(found: Comparison, form: str, width: int | None = None, *, every: bool = False) -> str:
    """The comparison in one of FORMATS, ending with a line break.

    Args:
        found: the comparison.
        form: one of FORMATS.
        width: columns of the terminal that shows it as text: lines fit it, and checks that are ok
            or skipped are counted in a line. None: whole lines, and all checks.
        every: all checks, whatever the width.

    Raises:
        UsageError: no such format.
    """
    check_format(form)
    if form == "json":
        return json_text(found)
    view = on_lines(view_of(found))
    if form == "markdown":
        template = environment().get_template("comparison.md.jinja")
        return tidy(template.render(view=view, table=table(view), headings=HEADINGS))
    folded = width is not None and not every
    rows = [row for row in view.rows if not (folded and row.passed)]
    inner = None if width is None else width - len(INDENT)
    lines, legend = _checks(rows, inner) if rows else ([], "")
    counts = _counts(view, inner) if folded and inner is not None else []
    template = environment().get_template("comparison.txt.jinja")
    text = template.render(view=view, table=lines, legend=legend, counts=counts, folded=folded)
    return wrapped(tidy(text), width)


def _counts(view: View, width: int) -> list[str]:
    """What is not shown row by row, a line for each kind."""
    passed = [row.name for row in view.rows if row.passed]
    kinds = (
        (passed, STATUS_WORDS["pass"], SEE_THEM),
        ([row.name for row in view.skipped], "skipped", SEE_WHY),
    )
    return [
        counted(len(names), f"check{'' if len(names) == 1 else 's'} {what}", names, tail, width)
        for names, what, tail in kinds
        if names
    ]


def tidy(text: str) -> str:
    """At most one empty line between lines, one line break at the end, nothing unprintable, and
    nothing that a job's log would take for a command."""
    shown = NOT_PRINTED.sub("", re.sub(r"\n{3,}", "\n\n", text).strip("\n") + "\n")
    return without_commands(shown)


def deliver(
    found: Comparison, form: str, output: Path | None = None, *, every: bool = False
) -> None:
    """Prints the comparison, or writes it to a file and prints its first line; on a terminal with
    `every` check in a row of its own.

    Raises:
        UsageError: no such format.
        MachineError: the file cannot be written.
    """
    width = None if output else terminal_width(sys.stdout)
    printed(render(found, form, width, every=every), found.first_line, output)


def printed(text: str, first_line: str, output: Path | None) -> None:
    """Prints a text, or writes it to a file and prints its first line.

    Raises:
        MachineError: the file cannot be written.
    """
    if output is None:
        print(text, end="")
        return
    write_text(output, text)
    print(wrapped(printable(first_line), terminal_width(sys.stderr)), file=sys.stderr)


def written(found: Comparison, folder: Path) -> None:
    """Leaves the comparison in a folder as `comparison.txt`, `.md` and `.json`.

    Raises:
        MachineError: it cannot be written.
    """
    for form, suffix in (("text", "txt"), ("markdown", "md"), ("json", "json")):
        write_text(folder / f"comparison.{suffix}", render(found, form))


def write_text(path: Path, text: str) -> None:
    """Replaces a file, in a folder that is made where it is missing.

    Raises:
        MachineError: it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, text)
    except OSError as error:
        raise MachineError(
            f"cannot write {path}: {error.strerror or error}", "choose another place with -o"
        ) from error
