"""The HTML page of a check. Needs the extra `[report]`."""

from __future__ import annotations

from collections.abc import Iterator

from canary.check.answer import Row, view_of_check
from canary.check.run import Checked
from canary.report.page import Page, Table, TableRow, page_text

MARKS = {"broken": "❌", "holds": "✅", "undecided": "⚪"}
COLUMNS = {
    "relation": "relation",
    "message": "what was found",
    "place": "where",
    "values": "values",
    "allowed": "rounding may move",
    "what": "must hold",
    "likely": "likely cause",
}
"""Columns of a table by the field of a row; those without content are left out."""
SHORT = ("relation", "message", "allowed")
"""Columns of relations that are not broken."""


def check_page(checked: Checked) -> str:
    """Return the page of a check: what is broken first, then a table for each other status."""
    view = view_of_check(checked)
    verdict = "broken" if view.broken else "holds" if view.holds else "undecided"
    statuses = {
        "Broken": view.broken,
        "Undecided": view.undecided,
        "Holds": view.holds,
        "Not applicable": view.not_applicable,
        "Not asked": view.not_asked,
    }
    page = Page(
        title=f"check of {checked.name}: {verdict}",
        first_line=view.answer,
        subtitle=f"canary {checked.name} · {view.cost}",
        verdict=verdict,
        mark=MARKS[verdict],
        tables=tuple(_tables(statuses)),
        notes=checked.notes,
    )
    return page_text(page)


def _tables(statuses: dict[str, tuple[Row, ...]]) -> Iterator[Table]:
    for title, rows in statuses.items():
        if not rows:
            continue
        wanted = COLUMNS if title == "Broken" else SHORT
        kept = [name for name in wanted if any(_cell(row, name) for row in rows)]
        yield Table(
            title,
            title.lower().replace(" ", "-"),
            tuple(COLUMNS[name] for name in kept),
            tuple(
                TableRow(tuple(_cell(row, name) for name in kept), row.source, row.link)
                if title == "Broken"
                else TableRow(tuple(_cell(row, name) for name in kept))
                for row in rows
            ),
        )


def _cell(row: Row, name: str) -> str:
    return str(getattr(row, {"relation": "name", "message": "found"}.get(name, name)))
