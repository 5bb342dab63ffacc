"""Launches of several levels side by side: their losses and their step times."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import altair as alt

from canary.report.charts.chart import CURRENT, OTHERS, Chart, Layer
from canary.report.charts.learning import STEP
from canary.report.charts.sides import Series, ShownRun, losses
from canary.report.charts.thinning import kept_steps
from canary.report.numbers import significant

Levels = Mapping[str, Sequence[ShownRun]]
"""The timed launches of each level, the oldest first; no level is empty."""

DASHES = ([1, 0], [6, 2], [2, 2], [8, 2, 2, 2], [4, 4])


def level_charts(levels: Levels) -> Iterator[Chart]:
    """Yield the charts of loss and step time, as far as they are known."""
    yield from _losses(levels)
    yield from _times(levels)


def _losses(levels: Levels) -> Iterator[Chart]:
    series = {level: found for level, runs in levels.items() if (found := _newest(runs))}
    if not series:
        return
    steps = kept_steps(list(series.values()))
    points = [
        {"step": step, "loss": one[step], "level": level}
        for level, one in series.items()
        for step in steps
        if step in one
    ]
    names = list(series)
    colours = alt.Scale(domain=names, range=[CURRENT, *OTHERS][: len(names)])
    dashes = alt.Scale(domain=names, range=list(DASHES[: len(names)]))
    line = (
        alt.Chart()
        .mark_line(strokeWidth=2)
        .encode(
            x=STEP,
            y=alt.Y("loss:Q", title="loss", scale=alt.Scale(zero=False)),
            color=alt.Color("level:N", scale=colours),
            strokeDash=alt.StrokeDash("level:N", scale=dashes),
        )
    )
    newest = ", ".join(f"{level} {significant(one[max(one)])}" for level, one in series.items())
    rows = tuple((step, *(one.get(step) for one in series.values())) for step in steps)
    title, finding = "Loss of each level", f"Its newest timed launch. The last losses: {newest}."
    yield Chart("loss", title, finding, ("step", *names), rows, (Layer(points, line),))


def _newest(runs: Sequence[ShownRun]) -> Series:
    """Return the losses of the newest launch that has any."""
    return next((found for run in reversed(runs) if (found := losses(run))), {})


def _times(levels: Levels) -> Iterator[Chart]:
    dots: list[dict[str, Any]] = [
        {"level": level, "run": run.record.run_id, "ms": 1e3 * run.record.perf.step_time.mean}
        for level, runs in levels.items()
        for run in runs
        if run.record.perf.step_time.count
    ]
    if not dots:
        return
    marks = (
        alt.Chart()
        .mark_point(filled=True, size=70, opacity=0.8, color=CURRENT)
        .encode(
            x=alt.X("ms:Q", title="ms per step, mean of a launch", scale=alt.Scale(zero=False)),
            y=alt.Y("level:N", title=None, sort=list(levels)),
        )
    )
    rows = tuple((dot["level"], dot["run"], dot["ms"]) for dot in dots)
    fastest = min(dots, key=lambda dot: dot["ms"])
    finding = (
        f"{len(dots)} timed launches. The shortest step is {significant(fastest['ms'])} ms, at "
        f"{fastest['level']}."
    )
    columns = ("level", "run", "ms per step")
    yield Chart("times", "Step time of each level", finding, columns, rows, (Layer(dots, marks),))
