"""The HTML page of a calibration. Needs the extra `[report]`."""

from __future__ import annotations

from collections.abc import Iterator

from canary.campaign.calibrate import (
    HEADINGS,
    PAIR_COUNTS,
    WORDS,
    Calibration,
    exact_lines,
    table_rows,
    title_of,
)
from canary.report.charts.noise import Measured, noise_charts
from canary.report.page import Page, page_text


def calibration_page(made: Calibration) -> str:
    """Return the page of a calibration."""
    page = Page(
        title=title_of(made),
        first_line=f"{title_of(made)}.",
        subtitle=f"measured {made.model.created}",
        answers=(("What is exact", " ".join(map(str.strip, exact_lines(made)))),),
        table="Metrics",
        headings=HEADINGS,
        checks=tuple((*row, *("-",) * (len(HEADINGS) - len(row))) for row in table_rows(made)),
        legend="Spread: relative standard deviation of one run. The columns after it: the smallest "
        "change that 4 of 5 comparisons find.",
    )
    return page_text(page, tuple(noise_charts(list(_measured(made)))))


def _measured(made: Calibration) -> Iterator[Measured]:
    for name, values in made.values.items():
        words, unit = WORDS[name]
        shown = made.model.detectable_pct.get(name, {})
        found = {count: shown[str(count)] for count in PAIR_COUNTS if shown}
        yield Measured(name, words, unit, values, made.model.metrics[name].run_sd, found)
