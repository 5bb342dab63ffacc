"""What a notebook shows of a ladder or an advice: its answer, its levels or switches, a chart."""

from __future__ import annotations

from typing import TYPE_CHECKING

from canary.ladder import advise_view
from canary.ladder.results import Advice, Ladder
from canary.ladder.view import HEADINGS, view_of_ladder
from canary.report.inline import Inline
from canary.report.pages import can_draw

if TYPE_CHECKING:
    from canary.report.charts.chart import Chart

OF_LADDER = ("level", "samples/s", "step", "memory", "speed-up", "guard")


def of_ladder(ladder: Ladder) -> Inline:
    """Return what is shown of a ladder."""
    view = view_of_ladder(ladder)
    places = [HEADINGS.index(name) for name in OF_LADDER]
    switched = "; ".join(
        f"{one.level.capitalize()} switches on {', '.join(one.switched)}"
        for one in ladder.levels
        if one.switched
    )
    return Inline(
        title=view.title,
        line=view.answer,
        headings=OF_LADDER,
        rows=tuple(tuple(row[place] for place in places) for row in view.rows),
        more=". ".join((*filter(None, (switched,)), *view.notes)),
        charts=_charts(ladder),
    )


def of_advice(advice: Advice) -> Inline:
    """Return what is shown of an advice."""
    view = advise_view.view_of_advice(advice)
    return Inline(
        title=view.title,
        line=view.answer,
        headings=advise_view.HEADINGS,
        rows=view.rows,
        more=". ".join(view.notes),
        charts=_charts(advice),
    )


def _charts(found: Ladder | Advice) -> tuple[Chart, ...]:
    if not can_draw():
        return ()
    from canary.ladder.page import charts_of

    return tuple(charts_of(found))
