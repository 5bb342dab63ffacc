"""The phases of a step on both sides: where its time goes, and which phase grew."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import altair as alt

from canary.compare.timing.phases import PhaseGrowth, StepGrowth, phase_growth
from canary.record.phases import phases_of_launches, typical_phases
from canary.record.types import RunRecord
from canary.report.charts.chart import BAD, BEFORE, CURRENT, NOW, SIDE_COLOURS, Chart, Layer
from canary.report.charts.sides import ShownSides
from canary.report.numbers import signed, significant

SIDE_OPACITY = alt.Scale(domain=[BEFORE, NOW], range=[0.45, 1.0])
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
    shares = {
        phase.phase: (
            _percent(phase.baseline_s, growth.baseline_s),
            _percent(phase.current_s, growth.current_s),
        )
        for phase in growth.phases
    }
    shown = [phase for phase in growth.phases if max(shares[phase.phase]) > 100 * LEAST]
    bars: list[dict[str, Any]] = [
        {
            "phase": phase.phase,
            "side": side,
            "ms": 1e3 * seconds,
            "words": f"{share:.0f}%{grown}",
            "grew": bool(grown),
        }
        for phase in shown
        for side, seconds, share, grown in (
            (BEFORE, phase.baseline_s, shares[phase.phase][0], ""),
            (
                *(NOW, phase.current_s, shares[phase.phase][1]),
                f" ▲ {_change(phase)}" * phase.stands_out,
            ),
        )
    ]
    longest = max((bar["ms"] for bar in bars), default=1.0)
    order = [phase.phase for phase in sorted(shown, key=lambda phase: -phase.baseline_s)]
    y = alt.Y("phase:N", title=None, sort=order)
    offset = alt.YOffset("side:N", sort=[BEFORE, NOW])
    both = (
        alt.Chart()
        .mark_bar(strokeWidth=1)
        .encode(
            x=alt.X("ms:Q", title="ms per step", scale=alt.Scale(domain=[0, 1.4 * longest])),
            y=y,
            yOffset=offset,
            color=alt.Color("side:N", scale=SIDE_COLOURS),
            fillOpacity=alt.FillOpacity("side:N", scale=SIDE_OPACITY, legend=None),
        )
    )
    layers = [Layer(bars, both)]
    plain = alt.Chart().mark_text(align="left", dx=4, fontSize=11)
    bold = alt.Chart().mark_text(align="left", dx=4, fontSize=11, color=BAD, fontWeight="bold")
    for mark, grew in ((plain, False), (bold, True)):
        words = mark.encode(x="ms:Q", y=y, yOffset=offset, text="words:N")
        layers.append(Layer([bar for bar in bars if bar["grew"] is grew], words))
    rows = tuple(
        (
            phase.phase,
            1e3 * phase.baseline_s,
            1e3 * phase.current_s,
            *shares[phase.phase],
            "grew" if phase.stands_out else "",
        )
        for phase in growth.phases
    )
    columns = ("phase", "baseline ms", "current ms", "baseline %", "current %", "marked")
    return Chart("phases", "Phases of a step", _finding(growth), columns, rows, tuple(layers))


def _percent(seconds: float, step_s: float) -> float:
    return 100 * seconds / step_s if step_s else 0.0


def _change(phase: PhaseGrowth) -> str:
    if not phase.baseline_s:
        return f"+{significant(1e3 * phase.current_s, 3)} ms"
    return signed(100 * (phase.current_s / phase.baseline_s - 1))


def _finding(growth: StepGrowth) -> str:
    if not growth.grown:
        longest = max(growth.phases, key=lambda phase: phase.current_s)
        share = _percent(longest.current_s, growth.current_s)
        return (
            f"No phase grew beyond its noise. The longest is {longest.phase}, {share:.0f}% of a "
            "steady step."
        )
    first = growth.grown[0]
    return (
        f"{first.phase} grew from {significant(1e3 * first.baseline_s)} to "
        f"{significant(1e3 * first.current_s)} ms per steady step, {100 * first.share:.0f}% of all "
        "growth."
    )


def _alone(record: RunRecord) -> Iterator[Chart]:
    launches = phases_of_launches([record])
    if not launches:
        return
    found = {name: seconds for name, seconds in typical_phases(launches).items() if seconds > 0}
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
