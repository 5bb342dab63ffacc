"""The HTML page of a profile, alone or against another run's. Needs the extra `[report]`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from canary.compare.diagnosis.operators import OperatorDifferences
from canary.report.charts.chart import Chart
from canary.report.charts.operators import difference_chart, self_time_charts
from canary.report.charts.phases import phase_charts
from canary.report.charts.sides import ShownRun, ShownSides
from canary.report.page import Page, page_text
from canary.report.profile import (
    OPERATOR_HEADINGS,
    ProfiledRun,
    profiled_pair,
    times_of,
    view_of_profile,
)


def profile_page(run: Path, against: Path | None, top: int) -> str:
    """Return the page of a run's profile, with `top` operators in its table.

    Raises:
        InputError, RecordError: as `profile_text`.
    """
    current, found = profiled_pair(run, against)
    view = view_of_profile(current, found, against, top)
    notes = [reading.text for reading in view.readings if not reading.concern]
    notes += [f"{label}: {value}" for label, value in view.files]
    concerns = [reading.text for reading in view.readings if reading.concern]
    page = Page(
        title=view.title,
        first_line=concerns[0] if concerns else view.title,
        subtitle=view.title if concerns else "",
        answers=view.totals,
        table=view.operators_title or "Operators",
        headings=OPERATOR_HEADINGS,
        checks=view.operators,
        alerts=tuple(concerns[1:]),
        notes=tuple(notes),
    )
    return page_text(page, tuple(_charts(current, found)))


def operator_charts_of(run: ProfiledRun, found: OperatorDifferences | None) -> Iterator[Chart]:
    """Yield the charts of a profile's operators, and of their differences from another run."""
    yield from self_time_charts(times_of(run))
    if found is not None:
        yield from difference_chart(found)


def _charts(run: ProfiledRun, found: OperatorDifferences | None) -> Iterator[Chart]:
    yield from operator_charts_of(run, found)
    yield from phase_charts(ShownSides((ShownRun(run.record),)))
