"""The page of a matrix: a table of all cells, the worst first, then what the worst ones left.

Needs the extra `[report]`. What cells left is read again from their folders, so the page can be
made later, and elsewhere.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from canary.baseline.history import drawer, entries
from canary.campaign.pairs import duration
from canary.compare.paths import Compared, Request, compared_paths
from canary.compare.rules import answers
from canary.matrix.answer import Answer, CellAnswer
from canary.matrix.attempt import CHECK, LOG, RUNS
from canary.matrix.outcomes import Verdict, ab_file, last_lines, run_folder
from canary.matrix.running import CELLS
from canary.record.strangers import refuse_links, seen_record
from canary.record.types import RunRecord
from canary.report.charts.chart import Chart
from canary.report.charts.sides import sides_of
from canary.report.comparison_page import charts_of, page_of
from canary.report.lines import cut
from canary.report.page import Charted, Page, Table, TableRow, joined_text, page_text
from canary.report.pages import COMPARISON, compared_in
from canary.report.rules import against

MOST_SECTIONS = 40
CHART_BYTES = 3 << 20
"""Charts of one cell have about 250,000 bytes, and take a second of one core."""
NO_ROOM = "This file has no room for its charts. To see them:"
LOG_LINES, LOG_BYTES = 30, 16 << 10
LONGEST_ANSWER = 600
HEADINGS = ("cell", "result", "time", "tries", "answer")
MARKS: dict[Verdict, str] = {
    "error": "💥",
    "invalid": "💥",
    "regression": "❌",
    "changed": "🟠",
    "inconclusive": "⚪",
    "no-baseline": "🆕",
    "pass": "✅",
}


def page_of_answer(
    answer: Answer, folder: Path, cell: str | None = None, history: Path | None = None
) -> str:
    """Return the page of the matrix in a folder, or of one of its cells. `history`: with the runs
    that its runs were compared with. What the answer itself names is not read: a stranger may have
    written it.

    Raises:
        InputError, RecordError: there is no such cell, or its folder is a link.
    """
    if cell is not None:
        refuse_links(folder / CELLS / cell, folder)  # The page may be written there.
        page, charts = _section(answer.named(cell), folder, history)
        return page_text(replace(page, folded=False), tuple(charts))
    cells = answer.worst_first
    first = _overview(answer, cells)
    parts = [(first, ()), *(_section(one, folder, history) for one in cells[:MOST_SECTIONS])]
    return joined_text(first.title, parts, listed=False, chart_bytes=CHART_BYTES)


def _overview(matrix: Answer, cells: Sequence[CellAnswer]) -> Page:
    worst = cells[0].verdict if cells else "error"
    rows = tuple(_row(one, number) for number, one in enumerate(cells))
    legend, scrolls = "", len(cells) > MOST_SECTIONS
    if scrolls:
        legend = (
            f"Only the worst {MOST_SECTIONS} of {len(cells)} cells have a section below. "
            "To see another: canary report FOLDER --canary CELL"
        )
    return Page(
        title=f"{matrix.name}: {matrix.answer}",
        first_line=matrix.answer,
        verdict=worst,
        mark=MARKS[worst],
        part="matrix" if matrix.name == "matrix" else f"matrix {matrix.name}",
        tables=(Table("Cells", "cells", HEADINGS, rows, legend, scrolls),) if rows else (),
    )


def _row(one: CellAnswer, number: int) -> TableRow:
    took = duration(one.seconds) if one.seconds else ""
    return TableRow(
        (one.cell, one.verdict, took, str(one.tries), cut(one.message, LONGEST_ANSWER)),
        # The table itself is part 1.
        part=number + 2 if number < MOST_SECTIONS else 0,
        state=one.verdict.replace(" ", "-"),
    )


def _section(one: CellAnswer, folder: Path, history: Path | None) -> Charted:
    """Return what is shown of a cell."""
    place = folder / CELLS / one.cell / str(one.tries)
    found, problem, log = None, "", tuple[str, ...]()
    try:
        refuse_links(place, folder)
        log = _log(place)
        if one.verdict not in ("error", "invalid"):  # A planted answer is no answer.
            found = _left_in(place, one, folder, history)
    except Exception as error:  # noqa: BLE001 - a stranger may have written it
        problem = f"What it left cannot be read: {error}"
    page, charts = found or (_plain(one), ())
    page = replace(
        page,
        mark=page.mark or MARKS[one.verdict],
        part=one.cell,
        folded=one.verdict in ("pass", "no-baseline"),
        log=log if found is None else (),
        notes=(*page.notes, problem) if problem else page.notes,
        uncharted=f"{NO_ROOM} canary report FOLDER --canary {one.cell}" if charts else "",
    )
    return page, charts


def _plain(one: CellAnswer) -> Page:
    return Page(
        title=one.cell,
        first_line=one.message,
        subtitle=f"canary {one.verb}",
        verdict=one.verdict,
        mark=MARKS[one.verdict],
    )


def _left_in(place: Path, one: CellAnswer, folder: Path, history: Path | None) -> Charted | None:
    """Return the page of what a try left: a check, a comparison or a run; None without any."""

    def load(run: Path) -> RunRecord:
        refuse_links(run, folder)
        return seen_record(run)

    at = ab_file(place) if one.verb == "ab" else None
    file = at or place / COMPARISON
    run = run_folder(place, CHECK if one.verb == "check" else RUNS)
    refuse_links(file, place)
    if file.is_file():
        compared = compared_in(file.parent, load)
    elif run is not None:
        compared = compared_paths(Request((run,), (), load=load))
    else:
        return None
    newest = compared.current[-1] if compared.current else None
    page = page_of(one.cell, compared.found, newest)
    if one.verb == "check" and newest is not None:
        lines = tuple(line.strip() for line in against(answers(newest)))
        page = replace(page, first_line=one.message, notes=(*lines, *page.notes))
    return page, _charts(compared, history)


def _charts(compared: Compared, history: Path | None) -> Iterator[Chart]:
    """Yield the charts. The runs of the history are read only if charts are drawn."""
    with contextlib.suppress(Exception):
        if history is not None and compared.current and not compared.baseline:
            wanted = {*compared.found.baseline.run_ids}
            stored = entries(drawer(history, compared.current[-1]))
            baseline = tuple(entry.record() for entry in stored if entry.run_id in wanted)
            compared = replace(compared, baseline=baseline)
        yield from charts_of(sides_of(compared))


def _log(place: Path) -> tuple[str, ...]:
    lines = last_lines(place / LOG, LOG_BYTES)[-LOG_LINES:]
    return tuple(cut(line) for line in lines)
