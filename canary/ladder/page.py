"""The HTML page of a ladder or an advice. Needs the extra `[report]`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from canary.ladder import advise_view as advised
from canary.ladder.labels import answer, value_words
from canary.ladder.results import Advice, Ladder, LevelFound
from canary.ladder.stored import damaged, read_result
from canary.ladder.view import HEADINGS, view_of_ladder
from canary.report.charts.chart import Chart
from canary.report.charts.speedups import Guard, Speed, speed_up_charts
from canary.report.page import Page, page_text

INTERVALS = "In brackets: 95% intervals."


def result_page(file: Path) -> str:
    """Return the page of one of `RESULTS`.

    Raises:
        RecordError: it cannot be read.
    """
    found = read_result(file)
    try:
        return ladder_page(found) if isinstance(found, Ladder) else advice_page(found)
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise damaged(file) from error


def ladder_page(ladder: Ladder) -> str:
    """Return the page of a ladder."""
    view = view_of_ladder(ladder)
    notes = [view.trl, *view.notes]
    for level in view.levels:
        notes += [f"{level.name}: {what}: {text}" for what, text in level.lines]
    page = _page(view.title, view.answer, view.place, notes)
    page = replace(page, table="Levels", headings=HEADINGS, checks=view.rows, legend=INTERVALS)
    return page_text(page, tuple(charts_of(ladder)))


def advice_page(advice: Advice) -> str:
    """Return the page of an advice: each switch alone."""
    view = advised.view_of_advice(advice)
    notes = [f"{switch}: {why}" for switch, why in (*view.broken, *view.skipped)] + [*view.notes]
    page = _page(view.title, view.answer, view.place, notes)
    page = replace(
        page, table="Switches", headings=advised.HEADINGS, checks=view.rows, legend=INTERVALS
    )
    return page_text(page, tuple(charts_of(advice)))


def charts_of(found: Ladder | Advice) -> Iterator[Chart]:
    """Yield the chart of all levels, or of each switch alone."""
    if isinstance(found, Ladder):
        title, said, speeds = "Speed-up of each level", answer(found), _levels(found)
    else:
        title, said, speeds = "Gain of each switch alone", advised.answer(found), _switches(found)
    yield from speed_up_charts(title, said, list(speeds))


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


def _switches(advice: Advice) -> Iterator[Speed]:
    choices = Counter(one.switch for one in advice.candidates)
    for one in advice.candidates:
        if one.gain is not None:
            values = map(value_words, one.settings.values()) if choices[one.switch] > 1 else ()
            name = " ".join((one.switch, *values))
            guard: Guard = "holds" if one.guard is not None and one.guard.holds else "UNSAFE"
            guard = "not run" if one.guard is None else guard
            yield Speed(name, one.gain.ratio, one.gain.low, one.gain.high, guard)


def _guard(level: LevelFound) -> Guard:
    if level.unsafe:
        return "UNSAFE"
    return "not run" if level.unguarded else "holds"
