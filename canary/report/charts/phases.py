"""The phases of a step on both sides: where its time goes, and which phase grew."""

from __future__ import annotations

from collections.abc import Iterator

import altair as alt

from canary.compare.timing.phases import PhaseGrowth, StepGrowth, phase_growth
from canary.record.types import RunRecord
from canary.report.charts.chart import BAD, BEFORE, CURRENT, NOW, SIDE_COLOURS, Chart, Layer
from canary.report.charts.sides import ShownSides
from canary.report.numbers import signed, significant

LEAST = 0.005
"""Share of the step; shorter phases are only in the table."""


def phase_charts(sides: ShownSides) -> Iterator[Chart]:
    """Yield the chart of phases, if the current side recorded them."""
    current = [run.record for run in sides.current]
    growth = phase_growth(current, [run.record for run in sides.baseline])
    if growth is not None:
        yield _both(growth)
    else:
        yield from _alone(current[-1])


def _both(growth: StepGrowth) -> Chart:
    shown = [phase for phase in growth.phases if _share(phase, growth) > LEAST]
    bars = [
        {"phase": phase.phase, "side": side, "ms": 1e3 * seconds}
        for phase in shown
        for side, seconds in ((BEFORE, phase.baseline_s), (NOW, phase.current_s))
    ]
    order = [phase.phase for phase in sorted(shown, key=lambda phase: -phase.baseline_s)]
    y = alt.Y("phase:N", title=None, sort=order)
    offset = alt.YOffset("side:N", sort=[BEFORE, NOW])
    both = (
        alt.Chart()
        .mark_bar()
        .encode(
            x=alt.X("ms:Q", title="ms per step"),
            y=y,
            yOffset=offset,
            color=alt.Color("side:N", scale=SIDE_COLOURS),
        )
    )
    layers = [Layer(bars, both)]
    grown = [
        {"phase": p.phase, "side": NOW, "ms": 1e3 * p.current_s, "words": f"▲ {_change(p)}"}
        for p in shown
        if p.stands_out
    ]
    if grown:
        text = alt.Chart().mark_text(align="left", dx=4, color=BAD, fontWeight="bold")
        words = text.encode(x="ms:Q", y=y, yOffset=offset, text="words:N")
        layers.append(Layer(grown, words))
    rows = tuple(
        (
            phase.phase,
            1e3 * phase.baseline_s,
            1e3 * phase.current_s,
            _percent(phase.baseline_s, growth.baseline_s),
            _percent(phase.current_s, growth.current_s),
            "grew" if phase.stands_out else "",
        )
        for phase in growth.phases
    )
    columns = ("phase", "baseline ms", "current ms", "baseline %", "current %", "marked")
    return Chart("phases", "Phases of a step", _finding(growth), columns, rows, tuple(layers))


def _share(phase: PhaseGrowth, growth: StepGrowth) -> float:
    return max(
        phase.baseline_s / growth.baseline_s if growth.baseline_s else 0.0,
        phase.current_s / growth.current_s if growth.current_s else 0.0,
    )


def _percent(seconds: float, step_s: float) -> float:
    return 100 * seconds / step_s if step_s else 0.0


def _change(phase: PhaseGrowth) -> str:
    if not phase.baseline_s:
        return f"+{significant(1e3 * phase.current_s, 3)} ms"
    return signed(100 * (phase.current_s / phase.baseline_s - 1))


def _finding(growth: StepGrowth) -> str:
    steps = f"{significant(1e3 * growth.baseline_s)} to {significant(1e3 * growth.current_s)} ms"
    if not growth.grown:
        longest = max(growth.phases, key=lambda phase: phase.current_s)
        share = _percent(longest.current_s, growth.current_s)
        grew = f"No phase grew beyond its noise ({steps} per step)"
        return f"{grew}. The longest is {longest.phase}, {share:.0f}%."
    first = growth.grown[0]
    return (
        f"{first.phase} grew from {significant(1e3 * first.baseline_s)} to "
        f"{significant(1e3 * first.current_s)} ms per step, {100 * first.share:.0f}% of all growth."
    )


def _alone(record: RunRecord) -> Iterator[Chart]:
    found = {name: seconds for name, seconds in record.phases.items() if seconds > 0}
    total = sum(found.values())
    if not total:
        return
    bars = [{"phase": name, "ms": 1e3 * s} for name, s in found.items() if s > LEAST * total]
    chart = alt.Chart().mark_bar(color=CURRENT)
    longest = max(found, key=lambda name: found[name])
    yield Chart(
        "phases",
        "Phases of a step",
        f"{longest} is the longest phase: {_percent(found[longest], total):.0f}% of "
        f"{significant(1e3 * total)} ms per step.",
        ("phase", "ms", "%"),
        tuple((name, 1e3 * s, _percent(s, total)) for name, s in found.items()),
        (
            Layer(
                bars,
                chart.encode(
                    x=alt.X("ms:Q", title="ms per step"),
                    y=alt.Y("phase:N", title=None, sort="-x"),
                ),
            ),
        ),
    )
