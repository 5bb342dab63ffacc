"""What changed by how many percent, with the interval and the limit of each check."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import altair as alt

from canary.compare.report import Check, Comparison
from canary.report.charts.chart import BAD, FAINT, GOOD, OTHERS, Chart, Layer

MOST = 12
FARTHEST_PCT = 100.0
"""Larger changes are drawn at the edge, where they hide no other."""
STATES = {"fail": "fails", "changed": "fails", "inconclusive": "undecided", "warn": "warns"}
"""Words by status; the others are ok."""
WORDS = ("fails", "undecided", "warns", "ok")
COLOURS = alt.Scale(domain=list(WORDS), range=[BAD, FAINT, OTHERS[3], GOOD])
SHAPES = alt.Scale(domain=list(WORDS), range=["cross", "square", "triangle-up", "circle"])


def change_charts(found: Comparison) -> Iterator[Chart]:
    """Yield the chart of the changes in percent; nothing without any."""
    checks = sorted(filter(_is_known, found.checks), key=lambda one: WORDS.index(_word(one)))
    if not checks:
        return
    points = [_point(one) for one in checks[:MOST]]
    y = alt.Y("check:N", title=None, sort=[one.name for one in checks[:MOST]])
    x = alt.X("change:Q", title="change in percent of the baseline", scale=_scale(points))
    colour = alt.Color("state:N", scale=COLOURS)
    dots = alt.Chart().mark_point(filled=True, size=80, opacity=1)
    rule = alt.Chart().mark_rule(strokeWidth=3, opacity=0.5)
    layers = (
        Layer([{"none": 0.0}], alt.Chart().mark_rule(color=FAINT).encode(x="none:Q")),
        Layer(_with(points, "low"), rule.encode(x="low:Q", x2="high:Q", y=y, color=colour)),
        Layer(
            _with(points, "limit"),
            alt.Chart().mark_tick(thickness=2, color=BAD).encode(x="limit:Q", y=y),
        ),
        Layer(
            points, dots.encode(x=x, y=y, color=colour, shape=alt.Shape("state:N", scale=SHAPES))
        ),
    )
    more = len(checks) - len(points)
    finding = "Change of each check; a bar is its interval, a red tick its limit."
    if any(abs(one.delta_pct or 0) > FARTHEST_PCT for one in checks[:MOST]):
        finding += f" Changes beyond {FARTHEST_PCT:.0f}% are drawn at the edge."
    finding += f" {more} more checks are not drawn." if more else ""
    columns = ("check", "change", "interval from", "interval to", "limit", "status")
    rows = tuple(tuple(point.values()) for point in points)
    yield Chart("changes", "Changes", finding, columns, rows, layers)


def _scale(points: Sequence[Mapping[str, str | float | None]]) -> alt.Scale:
    """Return a scale that ends at the farthest change, interval or limit, or earlier."""
    drawn = (point[key] for point in points for key in ("change", "low", "high", "limit"))
    known = [value for value in drawn if isinstance(value, float | int)]
    low, high = max(min(0.0, *known), -FARTHEST_PCT), min(max(0.0, *known), FARTHEST_PCT)
    room = 0.04 * (high - low) or 1.0
    return alt.Scale(domain=[low - room, high + room], nice=False, clamp=True)


def _word(check: Check) -> str:
    return STATES.get(check.status, "ok")


def _is_known(check: Check) -> bool:
    known = check.delta_pct is not None and math.isfinite(check.delta_pct)
    return known and check.status != "skip"


def _point(check: Check) -> dict[str, str | float | None]:
    low, high = check.interval if check.interval and check.scale == "%" else (None, None)
    return {
        "check": check.name,
        "change": check.delta_pct,
        "low": low if low is not None and math.isfinite(low) else None,
        "high": high if high is not None and math.isfinite(high) else None,
        "limit": check.threshold if check.scale == "%" else None,
        "state": _word(check),
    }


def _with(points: list[dict[str, str | float | None]], key: str) -> list[dict[str, object]]:
    return [{**point} for point in points if point[key] is not None]
