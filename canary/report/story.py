"""The story of a comparison: what happened, why, what to do, and the figures beside each other."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from canary.collect.record import RunRecord
from canary.compare.patterns import patterns
from canary.compare.phases import phase_growth
from canary.compare.report import Comparison
from canary.report.numbers import amount, signed
from canary.report.render import check_format, environment, tidy
from canary.report.view import SUMMARY_ROWS, SuspectRow, scaled, view_of

HEADINGS = ("metric", "baseline", "current", "change")
LEAST_PHASE = 0.01
"""Of a step: shorter phases are not listed."""


@dataclass(frozen=True)
class MetricRow:
    """One figure on both sides, as shown."""

    name: str
    baseline: str
    current: str
    change: str


@dataclass(frozen=True)
class Story:
    """Everything that `canary explain` tells."""

    first_line: str
    happened: tuple[str, ...]
    suspects: tuple[SuspectRow, ...]
    chain: tuple[str, ...]
    actions: tuple[str, ...]
    metrics: tuple[MetricRow, ...]


def story_of(
    found: Comparison, current: Sequence[RunRecord], baseline: Sequence[RunRecord]
) -> Story:
    """The story of a comparison of these records."""
    view = view_of(found)
    return Story(
        first_line=found.first_line,
        happened=(*patterns(found), *(row.message for row in view.failed)),
        suspects=view.suspects,
        chain=view.chain,
        actions=view.suspects[0].actions if view.suspects else (),
        metrics=(*_summary(found), *_phases(current, baseline)),
    )


def _summary(found: Comparison) -> Iterator[MetricRow]:
    for label, key, unit, factor in SUMMARY_ROWS:
        was, now = (
            scaled(side.summary.get(key), factor) for side in (found.baseline, found.current)
        )
        if was is not None and now is not None:
            yield _row(label, was, now, unit)


def _row(name: str, was: float, now: float, unit: str) -> MetricRow:
    change = "="
    if now != was:
        change = signed(100 * (now / was - 1)) if was else signed(now - was, unit)
    return MetricRow(name, amount(was, unit), amount(now, unit), change)


def _phases(current: Sequence[RunRecord], baseline: Sequence[RunRecord]) -> Iterator[MetricRow]:
    growth = phase_growth(current, baseline) if current and baseline else None
    if growth is None:
        return
    for phase in growth.phases:
        if max(phase.baseline_s / growth.baseline_s, phase.current_s / growth.current_s) > (
            LEAST_PHASE
        ):
            yield _row(f"{phase.phase} phase", 1e3 * phase.baseline_s, 1e3 * phase.current_s, "ms")
    if growth.baseline_cpu_s and growth.current_cpu_s:
        yield _row(
            "CPU time of a step", 1e3 * growth.baseline_cpu_s, 1e3 * growth.current_cpu_s, "ms"
        )


def story_text(story: Story, form: str) -> str:
    """The story as text, Markdown or JSON.

    Raises:
        UsageError: no such format.
    """
    check_format(form)
    if form == "json":
        return json.dumps({"schema_version": 1, **asdict(story)}, indent=1) + "\n"
    name = "explain.md.jinja" if form == "markdown" else "explain.txt.jinja"
    return tidy(environment().get_template(name).render(story=story, metrics=_table(story.metrics)))


def _table(rows: Sequence[MetricRow]) -> list[str]:
    cells = [HEADINGS, *((row.name, row.baseline, row.current, row.change) for row in rows)]
    widths = [max(len(line[place]) for line in cells) for place in range(len(HEADINGS))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in cells
    ]
