"""What a notebook shows of a record or a comparison: a short table, and charts if they can be
drawn. Never the whole object."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from canary.compare.paths import Request, compared_paths
from canary.compare.report import Comparison
from canary.compare.timing.side_figures import side_of
from canary.errors import InputError, counted, cut, did_you_mean, nearest
from canary.record.types import RunRecord
from canary.report.charts.theme import LIGHT
from canary.report.numbers import amount
from canary.report.pages import can_draw, require_charts
from canary.report.render import filled_page
from canary.report.view import figures_of, view_of

if TYPE_CHECKING:
    from canary.report.charts.chart import Chart
    from canary.report.page import ShownChart

MOST_ROWS = 8
OF_RECORD = ("loss", "phases")
MOST_CAUSES = 2
LONGEST_LINE = 600
FEW_METRICS = 2
"""Of a history, if none is named."""
OF_COMPARISON = ("check", "baseline", "current", "change", "limit", "status")


@dataclass(frozen=True)
class Inline:
    """Rows and charts that a notebook shows."""

    title: str
    line: str
    headings: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    more: str = ""
    """What the table leaves out."""
    causes: tuple[str, ...] = ()
    charts: tuple[Chart, ...] = ()

    def _repr_html_(self) -> str:
        pictures: tuple[ShownChart, ...] = ()
        if self.charts:
            from canary.report.page import shown_chart

            pictures = tuple(map(shown_chart, self.charts))
        return filled_page("inline.html.jinja", **{**vars(self), "charts": pictures}, colours=LIGHT)

    def __repr__(self) -> str:
        return f"{self.title}: {self.line}"


def shown(value: RunRecord | Comparison) -> Inline:
    """Return what is shown of a run or a comparison."""
    return of_comparison(value) if isinstance(value, Comparison) else of_record(value)


def of_record(record: RunRecord) -> Inline:
    """Return what is shown of a run."""
    side = side_of((record,))
    rows = ((label, amount(value, unit)) for _, label, unit, _, value in figures_of(side, side))
    line = ": ".join(filter(None, (record.status, cut(record.reason or ""))))
    drawn: Iterable[Chart] = ()
    if can_draw():
        from canary.report.charts.sides import ShownRun, ShownSides
        from canary.report.comparison_page import charts_of

        drawn = charts_of(ShownSides((ShownRun(record),)))
    return Inline(
        title=f"run of {record.name or 'a canary'}",
        line=line,
        headings=("figure", "value"),
        rows=tuple(rows),
        charts=tuple(one for one in drawn if one.name in OF_RECORD),
    )


def of_comparison(found: Comparison) -> Inline:
    """Return what is shown of a comparison: checks that are not ok, then the others."""
    view = view_of(found)
    order = (*view.failed, *view.undecided, *view.warned)
    named = {row.name for row in order}
    checks = [*order, *(row for row in view.rows if row.name not in named)]
    rows = (
        (one.name, one.baseline, one.current, one.change, one.threshold, one.status)
        for one in checks[:MOST_ROWS]
    )
    left = len(checks) - MOST_ROWS
    causes = (
        f"{one.category}{f' ({one.confidence})' if one.confidence else ''}: {one.description}"
        for one in view.suspects[:MOST_CAUSES]
    )
    return Inline(
        title=f"{view.mark} {view.verdict}",
        line=cut(found.first_line, LONGEST_LINE),
        headings=OF_COMPARISON,
        rows=tuple(rows),
        more=f"and {counted(left, 'more check')}" if left > 0 else "",
        causes=tuple(causes) if found.failed_checks else (),
    )


def charts(current: Path | str, baseline: Path | str | None = None, *names: str) -> Inline:
    """Return charts of a run's folder, or of a run and its baseline, for a notebook.

    Args:
        current: folder of a run.
        baseline: folder, file or history to compare it with.
        names: which charts, such as `loss` or `phases`; none: all.

    Raises:
        InputError: a path is missing, or there is no such chart.
        MachineError: the extra `report` is missing.
    """
    require_charts()
    from canary.report.charts.sides import sides_of
    from canary.report.comparison_page import charts_of

    before = () if baseline is None else (Path(baseline),)
    compared = compared_paths(Request((Path(current),), before))
    drawn = _named(charts_of(sides_of(compared)), names)
    newest = compared.current[-1]
    line = compared.found.first_line if before else newest.status
    return Inline(f"charts of {newest.name or 'a run'}", cut(line, LONGEST_LINE), charts=drawn)


def history(folder: Path | str, *names: str) -> Inline:
    """Return charts of the newest canary of a history, one per metric, for a notebook.

    Args:
        folder: a history, as `canary save-baseline RUN FOLDER` writes it.
        names: metrics, such as `final_loss`; none: the two worst.

    Raises:
        InputError: the folder holds no history, or the canary has no such metric.
        MachineError: the extra `report` is missing.
    """
    require_charts()
    from canary.report.charts.history import history_charts
    from canary.report.history_view import headline
    from canary.report.trend_words import sentence
    from canary.trends.history import trends_in

    found = trends_in(Path(folder))
    if not found:
        raise InputError(f"{folder} holds no runs", "store one: canary save-baseline RUN FOLDER")
    drawn = history_charts(found[0], "of")
    every = tuple(replace(one, name=one.name.removeprefix("of-")) for one in drawn)
    shown = _named(every, names) if names else every[:FEW_METRICS]
    return Inline(f"history of {found[0].canary}", sentence(headline(found[0])), charts=shown)


def _named(found: Iterable[Chart], names: tuple[str, ...]) -> tuple[Chart, ...]:
    every = {chart.name: chart for chart in found}
    for name in names:
        if name not in every:
            hint = did_you_mean(nearest(name, every), f"there are {', '.join(every)}")
            raise InputError(f"these runs have no chart {name!r}", hint)
    return tuple(every[name] for name in names or every)
