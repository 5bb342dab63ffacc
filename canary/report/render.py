"""Fill templates; render a comparison: text and Markdown from its view, JSON from its data."""

from __future__ import annotations

import base64
import functools
import hashlib
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import jinja2

from canary.compare.report import Comparison
from canary.errors import UsageError, counted, printable, writing
from canary.record.jsonio import replace_file
from canary.report.bisect_hint import Hint
from canary.report.charts.theme import style_of_colours
from canary.report.document import json_text
from canary.report.escape import (
    NOT_PRINTED,
    markdown_cell,
    markdown_code,
    markdown_code_cell,
    on_lines,
    without_commands,
)
from canary.report.lines import aligned, fitting, terminal_width, with_names, wrapped
from canary.report.view import STATUS_WORDS, CheckRow, View, view_of

Format = Literal["text", "markdown", "json"]
FORMATS: tuple[Format, ...] = ("text", "markdown", "json")
TEMPLATES = Path(__file__).parents[1] / "templates"
COLUMNS = {
    "name": "check",
    "baseline": "baseline",
    "current": "current",
    "change": "change",
    "interval": "interval",
    "threshold": "limit",
    "detectable": "detectable",
    "status": "status",
}
"""Fields of a check's row with their headings."""
HEADINGS = tuple(COLUMNS.values())


@functools.cache
def environment(*, html: bool = False) -> jinja2.Environment:
    """Return an environment in which an unknown name in a template is an error.

    `html`: escape every text.
    """
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=not html,
        autoescape=html,
    )
    made.filters["cell"] = markdown_cell
    made.filters["code"] = markdown_code
    made.filters["code_cell"] = markdown_code_cell
    return made


LEAST = ("detectable", "interval", "limit")
"""Columns that a narrow terminal drops, the first one first."""
LEGEND = {
    "change": "~ within the noise",
    "limit": "limit: how much a check allows",
    "detectable": "detectable: the smallest change that 4 of 5 comparisons would find",
    "status": "status: ok = pass, ? = undecided",
}
"""Explanations of columns, by heading."""
INDENT = "  "
SEE_THEM = "(-v shows them)"
SEE_WHY = "(-v says why)"


def table(view: View) -> list[str]:
    """Return the checks as aligned lines of text: a heading, then groups of rows."""
    return _checks(view.rows, None)[0]


def _checks(rows: Sequence[CheckRow], width: int | None) -> tuple[list[str], str]:
    """Return (the checks as lines that fit the width, the legend of their columns)."""
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
    """Raise UsageError for a format that is not in FORMATS."""
    if form not in FORMATS:
        raise UsageError(f"unknown format {form!r}", f"use one of {', '.join(FORMATS)}")


def render(
    found: Comparison,
    form: str,
    width: int | None = None,
    *,
    every: bool = False,
    hint: Hint | None = None,
) -> str:
    """Return the comparison in one of FORMATS, ending with a line break.

    Args:
        found: the comparison.
        form: one of FORMATS.
        width: columns of the terminal. Lines of text fit it, and passed or skipped checks are only
            counted. None: whole lines and all checks.
        every: show all checks even if there is a width.
        hint: how to find the culprit.

    Raises:
        UsageError: unknown format.
    """
    check_format(form)
    if form == "json":
        return json_text(found, hint)
    view = on_lines(view_of(found, hint))
    if form == "markdown":
        return filled("comparison", form, width, view=view, table=table(view), headings=HEADINGS)
    folded = width is not None and not every
    rows = [row for row in view.rows if not (folded and row.passed)]
    inner = None if width is None else width - len(INDENT)
    lines, legend = _checks(rows, inner) if rows else ([], "")
    counts = _counts(view, inner) if folded and inner is not None else []
    about: dict[str, Any] = {"table": lines, "legend": legend, "counts": counts, "folded": folded}
    return filled("comparison", form, width, [hint.command] if hint else [], view=view, **about)


def answer(found: Comparison, width: int | None = None) -> str:
    """Return the verdict, the changed code behind it and what to do as text."""
    return filled("comparison_answer", "text", width, view=view_of(found))


def short(found: Comparison, after: Sequence[str], width: int | None = None) -> str:
    """Return the verdict, its cause and the checks behind it as text, then the lines `after`.

    The first line and `after` stay whole: a program shows the one, people copy the others.
    """
    view = on_lines(view_of(found))
    return filled(
        "comparison_short", "text", width, (view.first_line, *after), view=view, after=after
    )


def filled(name: str, form: str, width: int | None, whole: Sequence[str] = (), **shown: Any) -> str:
    """Return a template with what it shows, each text on one line. Lines of text fit the width, if
    there is one; those in `whole` stay whole."""
    template = environment().get_template(f"{name}.{'md' if form == 'markdown' else 'txt'}.jinja")
    text = tidy(template.render(**{key: on_lines(value) for key, value in shown.items()}))
    return text if form == "markdown" else wrapped(text, width, whole)


def _counts(view: View, width: int) -> list[str]:
    """Return a line that counts the passed checks and one that counts the skipped ones."""
    passed = [row.name for row in view.rows if row.passed]
    kinds = (
        (passed, STATUS_WORDS["pass"], SEE_THEM),
        ([row.name for row in view.skipped], "skipped", SEE_WHY),
    )
    return [
        with_names(f"{counted(len(names), 'check')} {what}", names, tail, width)
        for names, what, tail in kinds
        if names
    ]


def tidy(text: str) -> str:
    """Return the text without repeated empty lines, unprintable characters and log commands, and
    with one line break at its end."""
    shown = NOT_PRINTED.sub("", re.sub(r"\n{3,}", "\n\n", text).strip("\n") + "\n")
    return without_commands(shown)


def deliver(
    found: Comparison,
    form: str,
    output: Path | None = None,
    *,
    every: bool = False,
    hint: Hint | None = None,
) -> None:
    """Print the comparison, or write it to a file and print its first line. `every` shows passed
    and skipped checks on a terminal too. `hint`: how to find the culprit.

    Raises:
        UsageError: unknown format.
        MachineError: the file cannot be written.
    """
    width = None if output else terminal_width(sys.stdout)
    printed(render(found, form, width, every=every, hint=hint), found.first_line, output)


def printed(text: str, first_line: str, output: Path | None) -> None:
    """Print a text, or write it to a file and print its first line.

    Raises:
        MachineError: the file cannot be written.
    """
    if output is None:
        print(text, end="")
        return
    write_text(output, text)
    print(wrapped(printable(first_line), terminal_width(sys.stderr)), file=sys.stderr)


def written(found: Comparison, folder: Path) -> None:
    """Write the comparison to a folder as `comparison.txt`, `.md` and `.json`.

    Raises:
        MachineError: a file cannot be written.
    """
    for form, suffix in (("text", "txt"), ("markdown", "md"), ("json", "json")):
        write_text(folder / f"comparison.{suffix}", render(found, form))


def write_text(path: Path, text: str) -> None:
    """Replace a file; make its folder if that is missing.

    Raises:
        MachineError: the file cannot be written.
    """
    with writing(path, "choose another place with -o"):
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, text)


@functools.cache
def asset(name: str) -> str:
    """Return a file of the templates; a style sheet begins with the colours."""
    text = (TEMPLATES / name).read_text(encoding="utf-8")
    return style_of_colours() + text if name.endswith(".css") else text


def source_of(text: str) -> str:
    """Return the source by which a policy allows this style or script."""
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"


def filled_page(template: str, **values: Any) -> str:
    """Return a template with these values; each text is one line without control characters."""
    lines = {name: on_lines(value) for name, value in values.items()}
    return NOT_PRINTED.sub("", environment(html=True).get_template(template).render(**lines))
