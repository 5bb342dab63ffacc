"""The answer of `canary check`, as text, Markdown and JSON."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from canary.campaign.pairs import duration
from canary.check.run import Checked
from canary.check.schema import FILE, LONGEST, VERSION
from canary.record.jsonio import shown
from canary.relations import RELATIONS
from canary.relations.relation import Outcome, Relation, RelationStatus
from canary.report.document import json_lines
from canary.report.escape import on_lines
from canary.report.lines import wrapped
from canary.report.render import FORMATS, check_format, environment, tidy, write_text

NEXT_STEPS = (
    "docs/relations.md says what each relation tests, and its limits. Test one alone with "
    "--only NAME, or leave it out with --skip NAME."
)


@dataclass(frozen=True)
class Row:
    """A relation as strings."""

    name: str
    what: str
    """What must hold."""
    message: str
    """With its place, if that is not in it."""
    found: str
    """The message alone."""
    place: str
    values: str
    """Both sides."""
    allowed: str
    """How far both sides may differ, if that is not in the message."""
    likely: str
    source: str
    link: str
    """The source, if it is one that this program names."""


@dataclass(frozen=True)
class View:
    """The answer as strings."""

    answer: str
    broken: tuple[Row, ...]
    undecided: tuple[Row, ...]
    holds: tuple[Row, ...]
    not_applicable: tuple[Row, ...]
    not_asked: tuple[Row, ...]
    cost: str
    folder: str


def first_line(checked: Checked) -> str:
    """Return the answer as a sentence."""
    broken, held = checked.of("broken"), len(checked.of("holds"))
    undecided = len(checked.of("undecided"))
    is_open = f"{undecided} {'is' if undecided == 1 else 'are'} undecided"
    more = f", {is_open}" if undecided else ""
    if broken:
        names = ", ".join(relation.id for relation, _ in broken)
        holding = f"{held} other relation{'s hold' if held > 1 else ' holds'}"
        others = f"{holding}{more}" if held else is_open if undecided else ""
        return f"Broken: {names}. {others}." if others else f"Broken: {names}."
    if not held:
        kinds: tuple[RelationStatus, ...] = ("not applicable", "undecided", "not asked")
        counts = [f"{count} {status}" for status in kinds if (count := len(checked.of(status)))]
        return f"No relation could be tested{': ' if counts else ''}{', '.join(counts)}."
    return f"No relation is broken: {held} hold{'s' if held == 1 else ''}{more}."


def check_text(checked: Checked, form: str, width: int | None = None) -> str:
    """Render the answer in one of the formats, ending with a line break.

    Raises:
        UsageError: unknown format.
    """
    check_format(form)
    if form == "json":
        return json_lines(check_document(checked))
    template = environment().get_template(f"check.{'md' if form == 'markdown' else 'txt'}.jinja")
    text = tidy(template.render(view=on_lines(view_of_check(checked)), next_steps=NEXT_STEPS))
    return text if form == "markdown" else wrapped(text, width)


def view_of_check(checked: Checked) -> View:
    """Return the answer as strings."""
    rows = {
        status: tuple(_row(*pair) for pair in checked.of(status))
        for status in get_args(RelationStatus)
    }
    launches = f"{checked.launches} launch{'' if checked.launches == 1 else 'es'}"
    return View(
        first_line(checked),
        rows["broken"],
        rows["undecided"],
        rows["holds"],
        rows["not applicable"],
        rows["not asked"],
        f"{launches} in {duration(checked.seconds)}",
        _here(checked.folder),
    )


def _here(folder: Path) -> str:
    """Return a folder as the reader of a terminal names it."""
    with contextlib.suppress(ValueError):
        folder = folder.relative_to(Path.cwd())
    return str(folder)


def _row(relation: Relation, one: Outcome) -> Row:
    message = one["message"]
    if one["place"] and one["place"] not in message:
        message = f"{one['place']}: {message}"
    allowed = one["tolerance"]
    return Row(
        relation.id,
        relation.holds,
        message,
        one["message"],
        one["place"],
        " and ".join(shown(f"{value:.6g}") for value in one["values"]),
        "" if allowed is None or f"allowed {allowed:.2g}" in message else shown(f"{allowed:.2g}"),
        relation.likely,
        relation.source,
        relation.source if RELATIONS.get(relation.id) == relation else "",
    )


def left_behind(checked: Checked) -> None:
    """Write the answer into the folder of the launches.

    Raises:
        MachineError: a file cannot be written.
    """
    for form, suffix in zip(FORMATS, ("txt", "md", "json"), strict=True):
        write_text(checked.folder / f"check.{suffix}", check_text(checked, form))


def write_check(checked: Checked, path: Path) -> None:
    """Write the HTML page of a check.

    Raises:
        MachineError: the file cannot be written.
    """
    from canary.check.page import check_page

    write_text(path, check_page(checked))


def check_of(folder: Path) -> Path | None:
    """Return the file with the answer of a check that a folder holds; None without one."""
    file = folder / FILE
    return file if file.is_file() else None


def check_document(checked: Checked) -> dict[str, Any]:
    """Return the answer as plain data."""
    return {
        "schema_version": VERSION,
        "first_line": first_line(checked),
        "name": checked.name,
        "exit_code": checked.exit_code,
        "relations": [
            {
                **one,
                "message": one["message"][:LONGEST],
                "place": one["place"][:LONGEST],
                "group": relation.group,
                "holds_if": relation.holds,
                "likely": relation.likely,
                "source": relation.source,
            }
            for relation, one in checked.pairs()
        ],
        "launches": checked.launches,
        "seconds": checked.seconds,
        "record": str(checked.folder),
        "notes": list(checked.notes),
    }


def listing() -> str:
    """Return all relations as text."""
    width = max(map(len, RELATIONS))
    return "".join(
        f"{one.id.ljust(width)}  {one.holds[0].upper()}{one.holds[1:]}.\n"
        for one in RELATIONS.values()
    )
