"""The HTML page of a check. Needs the extra `[report]`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from canary.check.answer import Row, view_of_check
from canary.check.run import Checked
from canary.report.page import Page, Table, TableRow, page_text

ISSUE = re.compile(r"https://github\.com/[\w.-]+/([\w.-]+)/(?:issues|pull)/(\d+)/?")
FILE = re.compile(r"https://github\.com/[\w.-]+/([\w.-]+)/(?:blob|tree|releases)(?:/.*)?")
PAPER = re.compile(r"https://arxiv\.org/abs/(\d{4}\.\d{4,5})")
PAGE = re.compile(r"https?://([\w.-]+)(?:/.*)?")

MARKS = {"broken": "❌", "holds": "✅", "undecided": "⚪"}
COLUMNS = {
    "relation": "relation",
    "message": "what was found",
    "place": "where",
    "values": "values",
    "allowed": "allowed",
    "what": "must hold",
    "likely": "likely cause",
}
"""Columns of a table by the field of a row; those without content are left out."""
HELD = ("relation", "what", "message", "allowed")
"""Columns of relations that hold."""
REASONS = {"relation": "relation", "message": "reason"}
"""Columns of relations without an answer."""


def check_page(checked: Checked) -> str:
    """Return the page of a check as HTML."""
    return page_text(page_of_check(checked))


def page_of_check(checked: Checked) -> Page:
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
    return Page(
        title=f"check of {checked.name}: {verdict}",
        first_line=view.answer,
        subtitle=f"canary {checked.name} · {view.cost}",
        verdict=verdict,
        mark=MARKS[verdict],
        tables=tuple(_tables(statuses)),
        notes=checked.notes,
    )


def _tables(statuses: dict[str, tuple[Row, ...]]) -> Iterator[Table]:
    for title, rows in statuses.items():
        if not rows:
            continue
        wanted = _columns(title)
        kept = [name for name in wanted if any(_cell(row, name) for row in rows)]
        yield Table(
            title,
            title.lower().replace(" ", "-"),
            tuple(wanted[name] for name in kept),
            tuple(
                TableRow(tuple(_cell(row, name) for name in kept), _source(row), row.link)
                if title == "Broken"
                else TableRow(tuple(_cell(row, name) for name in kept))
                for row in rows
            ),
        )


def _columns(title: str) -> dict[str, str]:
    """Return the columns of a table by the field of a row."""
    if title == "Broken":
        return COLUMNS
    return {name: COLUMNS[name] for name in HELD} if title == "Holds" else REASONS


def _source(row: Row) -> str:
    return short_link(row.link) if row.link else row.source


def _cell(row: Row, name: str) -> str:
    return str(getattr(row, {"relation": "name", "message": "found"}.get(name, name)))


def short_link(link: str) -> str:
    """Return an address as people name it, such as `trl#3526`; other texts come back as they
    are."""
    if found := ISSUE.fullmatch(link):
        return f"{found[1]}#{found[2]}"
    if found := PAPER.fullmatch(link):
        return f"arXiv:{found[1]}"
    if found := (FILE.fullmatch(link) or PAGE.fullmatch(link)):
        return found[1]
    return link
