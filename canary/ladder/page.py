"""The HTML page of a ladder or an advice. Needs the extra `[report]`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from canary.errors import RecordError
from canary.ladder import advise_view as advised
from canary.ladder.labels import settings_words
from canary.ladder.results import RESULTS, Advice, Ladder, LevelFound
from canary.ladder.view import HEADINGS, view_of_ladder
from canary.record.folder import read_document
from canary.report.charts.speedups import Guard, Speed, speed_up_charts
from canary.report.page import Page, page_text

INTERVALS = "In brackets: 95% intervals."


def result_page(file: Path) -> str:
    """Return the page of one of `RESULTS`.

    Raises:
        RecordError: it cannot be read.
    """
    document = read_document(file, "ladder", "run canary ladder again")
    try:
        if file.name == RESULTS[0]:
            return ladder_page(TypeAdapter(Ladder).validate_python(document))
        return advice_page(TypeAdapter(Advice).validate_python(document))
    except (ValidationError, ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise RecordError(f"{file} is not the result of a ladder", "run it again") from error


def ladder_page(ladder: Ladder) -> str:
    """Return the page of a ladder."""
    view = view_of_ladder(ladder)
    notes = [view.trl, *view.notes]
    for level in view.levels:
        notes += [f"{level.name}: {what}: {text}" for what, text in level.lines]
    charts = speed_up_charts("Speed-up of each level", view.answer, list(_levels(ladder)))
    page = _page(view.title, view.answer, view.place, notes)
    page = replace(page, table="Levels", headings=HEADINGS, checks=view.rows, legend=INTERVALS)
    return page_text(page, tuple(charts))


def advice_page(advice: Advice) -> str:
    """Return the page of an advice: each switch alone."""
    view = advised.view_of_advice(advice)
    notes = [f"{switch}: {why}" for switch, why in (*view.broken, *view.skipped)] + [*view.notes]
    speeds = [
        Speed(
            f"{one.switch} ({settings_words(one.settings)})",
            one.gain.ratio,
            one.gain.low,
            one.gain.high,
            "not run" if one.guard is None else "holds" if one.guard.holds else "UNSAFE",
        )
        for one in advice.candidates
        if one.gain is not None
    ]
    charts = speed_up_charts("Gain of each switch alone", view.answer, speeds)
    page = _page(view.title, view.answer, view.place, notes)
    page = replace(
        page, table="Switches", headings=advised.HEADINGS, checks=view.rows, legend=INTERVALS
    )
    return page_text(page, tuple(charts))


def _page(title: str, said: str, place: str, notes: list[str]) -> Page:
    return Page(
        title=title, first_line=f"{title}: {said}", subtitle=place, verdict="", notes=tuple(notes)
    )


def _levels(ladder: Ladder) -> Iterator[Speed]:
    for place, level in enumerate(ladder.levels):
        if place == 0:
            yield Speed(level.level, 1.0, None, None, "reference")
        elif level.cumulative is not None:
            found = level.cumulative
            yield Speed(level.level, found.ratio, found.low, found.high, _guard(level))
    trl = ladder.trl.over_baseline
    if trl is not None:
        yield Speed("trl's defaults", trl.ratio, trl.low, trl.high, "reference")


def _guard(level: LevelFound) -> Guard:
    if level.unsafe:
        return "UNSAFE"
    return "not run" if level.unguarded else "holds"
