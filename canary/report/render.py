"""Renders a comparison: templates fill in the view, JSON takes the comparison itself."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

from canary.collect.jsonio import replace_file
from canary.compare.report import Comparison
from canary.errors import MachineError, UsageError, printable
from canary.report.document import json_text
from canary.report.escape import (
    NOT_PRINTED,
    markdown_cell,
    markdown_code,
    on_lines,
    without_commands,
)
from canary.report.view import View, view_of

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
    made = ImmutableSandboxedEnvironment(
        loader=jinja2.ChoiceLoader(
            [jinja2.DictLoader(dict(own or {})), jinja2.FileSystemLoader(TEMPLATES)]
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


def table(view: View) -> list[str]:
    """The checks as aligned lines of text: a heading, then groups of rows."""
    widths = [
        max([len(heading), *(len(getattr(row, column)) for row in view.rows)])
        for heading, column in zip(HEADINGS, COLUMNS, strict=True)
    ]
    widths[0] += 2

    def line(cells: tuple[str, ...]) -> str:
        padded = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
        return "  ".join(padded).rstrip()

    lines = [line(HEADINGS)]
    group = ""
    for row in view.rows:
        if row.group != group:
            group = row.group
            lines.append(group)
        cells = tuple(getattr(row, column) for column in COLUMNS)
        lines.append(line((f"  {cells[0]}", *cells[1:])))
    return lines


def check_format(form: str) -> None:
    """UsageError for a format that is none of FORMATS."""
    if form not in FORMATS:
        raise UsageError(f"no format {form!r}", f"one of {', '.join(FORMATS)}")


def render(found: Comparison, form: str) -> str:
    """The comparison in one of FORMATS, ending with a line break.

    Raises:
        UsageError: no such format.
    """
    check_format(form)
    if form == "json":
        return json_text(found)
    view = on_lines(view_of(found))
    name = "comparison.md.jinja" if form == "markdown" else "comparison.txt.jinja"
    text = environment().get_template(name).render(view=view, table=table(view), headings=HEADINGS)
    return tidy(text)


def tidy(text: str) -> str:
    """At most one empty line between lines, one line break at the end, nothing unprintable, and
    nothing that a job's log would take for a command."""
    shown = NOT_PRINTED.sub("", re.sub(r"\n{3,}", "\n\n", text).strip("\n") + "\n")
    return without_commands(shown)


def deliver(found: Comparison, form: str, output: Path | None) -> None:
    """Prints the comparison, or writes it to a file and prints its first line.

    Raises:
        UsageError: no such format.
        MachineError: the file cannot be written.
    """
    printed(render(found, form), found.first_line, output)


def printed(text: str, first_line: str, output: Path | None) -> None:
    """Prints a text, or writes it to a file and prints its first line.

    Raises:
        MachineError: the file cannot be written.
    """
    if output is None:
        print(text, end="")
        return
    write_text(output, text)
    print(printable(first_line), file=sys.stderr)


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
