"""The HTML page of a calibration, and what a notebook shows of it. Charts need the extra
`[report]`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from canary.campaign.calibrate import (
    HEADINGS,
    PAIR_COUNTS,
    WORDS,
    Calibration,
    exact_lines,
    table_rows,
    title_of,
)
from canary.report.inline import Inline
from canary.report.pages import can_draw

if TYPE_CHECKING:
    from canary.report.charts.chart import Chart
    from canary.report.charts.noise import Measured

LEGEND = (
    "Spread: relative standard deviation of one run. The columns after it: the smallest change "
    "that 4 of 5 comparisons find."
)
SHOWN_INLINE = ("detectable", "runs_step_time_median")


def calibration_page(made: Calibration) -> str:
    """Return the page of a calibration."""
    from canary.report.charts.noise import noise_charts
    from canary.report.page import Page, page_text

    page = Page(
        title=title_of(made),
        first_line=f"{title_of(made)}.",
        subtitle=f"measured {made.model.created}",
        answers=(("What is exact", " ".join(map(str.strip, exact_lines(made)))),),
        table="Metrics",
        headings=HEADINGS,
        checks=_filled_rows(made),
        legend=LEGEND,
    )
    return page_text(page, tuple(noise_charts(list(_measured(made)))))


def inline_calibration(made: Calibration) -> Inline:
    """Return what a notebook shows of a calibration."""
    charts: tuple[Chart, ...] = ()
    if can_draw():
        from canary.report.charts.noise import noise_charts

        every = noise_charts(list(_measured(made)))
        charts = tuple(one for one in every if one.name in SHOWN_INLINE)
    return Inline(
        title_of(made),
        " ".join(map(str.strip, exact_lines(made))),
        headings=HEADINGS,
        rows=_filled_rows(made),
        more=LEGEND,
        charts=charts,
    )


def _filled_rows(made: Calibration) -> tuple[tuple[str, ...], ...]:
    return tuple((*row, *("-",) * (len(HEADINGS) - len(row))) for row in table_rows(made))


def _measured(made: Calibration) -> Iterator[Measured]:
    from canary.report.charts.noise import Measured

    for name, values in made.values.items():
        words, unit = WORDS[name]
        shown = made.model.detectable_pct.get(name, {})
        found = {count: shown[str(count)] for count in PAIR_COUNTS if shown}
        yield Measured(name, words, unit, values, made.model.metrics[name].run_sd, found)
