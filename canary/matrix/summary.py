"""The answer of a matrix: a line per cell, the worst first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from canary.campaign.pairs import duration
from canary.errors import EXIT_USAGE, printable
from canary.matrix.outcomes import WORST_FIRST, Verdict, worst_code
from canary.matrix.running import Entry
from canary.matrix.stored import FILE
from canary.record import jsonio
from canary.report.escape import markdown_cell, markdown_code
from canary.report.lines import aligned, wrapped
from canary.report.render import write_text
from canary.report.view import counted


def ordered(entries: Sequence[Entry]) -> list[Entry]:
    """Return the cells with an outcome, the worst first."""
    done = [one for one in entries if one.outcome is not None]
    return sorted(done, key=lambda one: WORST_FIRST.index(_verdict(one)))


def _verdict(entry: Entry) -> Verdict:
    return "error" if entry.outcome is None else entry.outcome.verdict


def exit_code(entries: Sequence[Entry]) -> int:
    """Return the exit code of the worst cell; if the budget is too small for all, that says nothing
    about them."""
    if all(_verdict(one) == "left out" for one in entries):
        return EXIT_USAGE
    return worst_code([one.outcome for one in entries if one.outcome is not None])


def first_line(entries: Sequence[Entry]) -> str:
    """Return the answer as a sentence."""
    counts = Counter(map(_verdict, entries))
    parts = [counted(one, counts[one]) for one in WORST_FIRST if counts[one]]
    cells = "1 cell" if len(entries) == 1 else f"{len(entries)} cells"
    return f"{cells}: {', '.join(parts)}."


HEADINGS = ("cell", "result", "time", "answer")


def _rows(entries: Sequence[Entry]) -> list[tuple[str, str, str, str]]:
    """Return the rows of the table: a record may say anything, so each is one harmless line."""
    rows: list[tuple[str, str, str, str]] = []
    for one in ordered(entries):
        assert one.outcome is not None
        took = duration(one.outcome.seconds) if one.outcome.seconds else ""
        tries = f" (try {one.number})" if one.number > 1 else ""
        words = printable(one.outcome.words) + tries
        rows.append((one.cell.name, one.outcome.verdict, took, words))
    return rows


def text(entries: Sequence[Entry], folder: Path, width: int | None) -> str:
    """Return the answer for a terminal."""
    lines = [first_line(entries), "", *aligned([HEADINGS, *_rows(entries)])]
    return wrapped("\n".join([*lines, "", f"Folder: {folder}"]), width) + "\n"


def markdown(entries: Sequence[Entry], folder: Path) -> str:
    """Return the answer as Markdown."""
    lines = [f"**{first_line(entries)}**", "", f"| {' | '.join(HEADINGS)} |", "|---|---|---|---|"]
    lines += [f"| {' | '.join(map(markdown_cell, row))} |" for row in _rows(entries)]
    return "\n".join([*lines, "", f"Folder: {markdown_code(folder)}"]) + "\n"


def document(entries: Sequence[Entry], name: str) -> dict[str, Any]:
    """Return the answer as plain data."""
    return {
        "schema_version": 1,
        "name": name,
        "answer": first_line(entries),
        "exit_code": exit_code(entries),
        "cells": [
            {
                "cell": one.cell.name,
                "verb": one.cell.verb,
                "verdict": _verdict(one),
                "message": "" if one.outcome is None else printable(one.outcome.words),
                "tries": one.number,
                "seconds": 0.0 if one.outcome is None else one.outcome.seconds,
                "folder": None
                if one.outcome is None or one.outcome.folder is None
                else str(one.outcome.folder),
                "history": None
                if one.outcome is None or one.outcome.history is None
                else str(one.outcome.history),
            }
            for one in entries
        ],
    }


def write(entries: Sequence[Entry], name: str, folder: Path) -> None:
    """Write the answer beside the cells."""
    write_text(folder / FILE, jsonio.dumps(document(entries, name), indent=1) + "\n")
