"""The answer of `canary check`, as text, Markdown and JSON."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from canary.campaign.pairs import duration
from canary.check.run import Checked
from canary.relations import RELATIONS
from canary.relations.relation import Outcome
from canary.report.advisories import AdvisoryRow, match_document, match_row
from canary.report.document import json_lines
from canary.report.escape import on_lines
from canary.report.lines import wrapped
from canary.report.render import FORMATS, check_format, environment, tidy, write_text

DOCUMENT_VERSION = 1


@dataclass(frozen=True)
class Row:
    """A relation as strings."""

    name: str
    what: str
    """What must hold."""
    message: str
    place: str
    likely: str
    source: str


@dataclass(frozen=True)
class View:
    """The answer as strings."""

    answer: str
    broken: tuple[Row, ...]
    undecided: tuple[Row, ...]
    holds: tuple[Row, ...]
    not_applicable: tuple[Row, ...]
    faults: tuple[AdvisoryRow, ...]
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
        others = f"{held} other relation{' holds' if held == 1 else 's hold'}"
        return f"Broken: {names}. {others}{more}."
    if not held:
        some = f": {undecided} relation{'s' if undecided != 1 else ''} {is_open.split(' ', 1)[1]}"
        return f"Nothing could be checked{some if undecided else ''}."
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
    text = tidy(template.render(view=on_lines(_view(checked))))
    return text if form == "markdown" else wrapped(text, width)


def _view(checked: Checked) -> View:
    rows = {
        status: tuple(_row(one) for _, one in checked.of(status))
        for status in ("broken", "undecided", "holds", "not applicable")
    }
    folder = checked.folder
    with contextlib.suppress(ValueError):
        folder = folder.relative_to(Path.cwd())
    launches = f"{checked.launches} launch{'' if checked.launches == 1 else 'es'}"
    return View(
        first_line(checked),
        rows["broken"],
        rows["undecided"],
        rows["holds"],
        rows["not applicable"],
        tuple(map(match_row, checked.faults)),
        f"{launches} in {duration(checked.seconds)}",
        str(folder),
    )


def _row(one: Outcome) -> Row:
    relation = RELATIONS[one["relation"]]
    message = one["message"]
    if one["place"] and one["place"] not in message:
        message = f"{one['place']}: {message}"
    return Row(relation.id, relation.holds, message, one["place"], relation.likely, relation.source)


def left_behind(checked: Checked) -> None:
    """Write the answer into the folder of the launches.

    Raises:
        MachineError: a file cannot be written.
    """
    for form, suffix in zip(FORMATS, ("txt", "md", "json"), strict=True):
        write_text(checked.folder / f"check.{suffix}", check_text(checked, form))


def check_document(checked: Checked) -> dict[str, Any]:
    """Return the answer as plain data."""
    return {
        "schema_version": DOCUMENT_VERSION,
        "first_line": first_line(checked),
        "name": checked.name,
        "exit_code": checked.exit_code,
        "relations": [
            {
                **one,
                "group": RELATIONS[one["relation"]].group,
                "holds_if": RELATIONS[one["relation"]].holds,
                "likely": RELATIONS[one["relation"]].likely,
                "source": RELATIONS[one["relation"]].source,
            }
            for one in checked.outcomes
        ],
        "launches": checked.launches,
        "seconds": checked.seconds,
        "record": str(checked.folder),
        "notes": list(checked.notes),
        "known_faults": list(map(match_document, checked.faults)),
    }


def listing() -> str:
    """Return all relations as text."""
    width = max(map(len, RELATIONS))
    return "".join(
        f"{one.id.ljust(width)}  {one.holds[0].upper()}{one.holds[1:]}.\n"
        for one in RELATIONS.values()
    )
