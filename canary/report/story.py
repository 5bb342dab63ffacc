"""The story of a comparison: what happened, why, what to do, and the figures beside each other."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from canary.compare.diagnosis.patterns import TIME, patterns
from canary.compare.report import Check, Comparison
from canary.compare.timing.phases import phase_growth
from canary.record.types import RunRecord
from canary.report.document import document, json_lines
from canary.report.escape import on_lines
from canary.report.lines import aligned, fitting, wrapped
from canary.report.numbers import amount, signed
from canary.report.render import INDENT, check_format, environment, tidy
from canary.report.view import GROUPS, SUMMARY_ROWS, SuspectRow, scaled, view_of

HEADINGS = ("metric", "baseline", "current", "change")
TIMED = ("step_time_mean_s", "step_time_p95_s", "tokens_per_sec")
"""Figures of the summary that the clock made."""
NOISE = "too noisy to tell"
"""Beside a timing's change where the step time may not have changed at all."""
LEAST_PHASE = 0.01
"""Of a step: shorter phases are not listed."""


@dataclass(frozen=True)
class MetricRow:
    """One figure on both sides, as shown and as it is."""

    name: str
    baseline: str
    current: str
    change: str
    values: tuple[float, float]
    unit: str


@dataclass(frozen=True)
class Story:
    """Everything that `canary explain` tells."""

    first_line: str
    happened: tuple[str, ...]
    note: str
    """Above the suspects, or in their place."""
    suspects: tuple[SuspectRow, ...]
    chain: tuple[str, ...]
    actions: tuple[str, ...]
    metrics: tuple[MetricRow, ...]


def story_of(
    found: Comparison, current: Sequence[RunRecord], baseline: Sequence[RunRecord]
) -> Story:
    """The story of a comparison of these records."""
    view = view_of(found)
    noisy = _noisy(found)
    return on_lines(
        Story(
            first_line=found.first_line,
            happened=(*patterns(found), *_failures(found)),
            note=_note(found),
            suspects=view.suspects,
            chain=view.chain,
            actions=view.suspects[0].actions if view.suspects else (),
            metrics=(*_summary(found, noisy), *_phases(found, current, baseline, noisy)),
        )
    )


def _failures(found: Comparison) -> Iterator[str]:
    """Failed checks in words, in the order of the tables."""
    for check in sorted(found.failed_checks, key=lambda check: GROUPS.index(check.group)):
        yield _failed(check)


def _failed(check: Check) -> str:
    """In words; of a stage of the exact lane with its name, which its words lack."""
    stage = check.lane == "exact" and check.group == "correctness"
    return f"{check.name}: {check.message}" if stage else check.message


def _note(found: Comparison) -> str:
    if found.verdict == "error":
        if found.diagnosis.suspects:
            return "The runs could not be judged; what differs between them:"
        return "The runs were not compared: the error above is all that is known."
    if found.verdict in ("regression", "changed"):
        return ""
    if found.diagnosis.suspects:
        return "It is not decided whether anything got worse. Possible cause, if it did:"
    return "Nothing is known to have got worse, and nothing that was recorded stands out."


def _noisy(found: Comparison) -> bool:
    """Whether the step time was judged and each check of it is too noisy to tell."""
    clock = [check for check in found.checks if check.name in TIME and check.interval is not None]
    return bool(clock) and all(check.in_noise for check in clock)


def _summary(found: Comparison, noisy: bool) -> Iterator[MetricRow]:
    for label, key, unit, factor in SUMMARY_ROWS:
        was, now = (
            scaled(side.summary.get(key), factor) for side in (found.baseline, found.current)
        )
        if was is not None and now is not None:
            yield _row(label, was, now, unit, noisy=noisy and key in TIMED)


def _row(name: str, was: float, now: float, unit: str, *, noisy: bool) -> MetricRow:
    change = "="
    if not (math.isfinite(was) and math.isfinite(now)):
        change = "=" if str(was) == str(now) else "not finite"
    elif now != was:
        change = signed(100 * (now / was - 1)) if was else signed(now - was, unit)
        change = f"{change}, {NOISE}" if noisy else change
    return MetricRow(name, amount(was, unit), amount(now, unit), change, (was, now), unit)


def _phases(
    found: Comparison, current: Sequence[RunRecord], baseline: Sequence[RunRecord], noisy: bool
) -> Iterator[MetricRow]:
    growth = phase_growth(current, baseline) if current and baseline else None
    if growth is None:
        return
    for phase in growth.phases:
        if max(phase.baseline_s / growth.baseline_s, phase.current_s / growth.current_s) > (
            LEAST_PHASE
        ):
            was, now = 1e3 * phase.baseline_s, 1e3 * phase.current_s
            yield _row(f"{phase.phase} phase", was, now, "ms", noisy=noisy)
    check = next((one for one in found.checks if one.name == "cpu_time"), None)
    cpu = (check.baseline, check.current) if check and check.unit == "ms" else ()
    judged = [value for value in cpu if isinstance(value, float)]
    if len(judged) < 2:
        judged = [1e3 * (s or 0.0) for s in (growth.baseline_cpu_s, growth.current_cpu_s)]
    if all(judged):
        yield _row("CPU time per step", judged[0], judged[1], "ms", noisy=noisy)


def story_text(story: Story, form: str, found: Comparison, width: int | None = None) -> str:
    """The story as text, Markdown or JSON; as text with lines that fit the width, where there is
    one.

    Raises:
        UsageError: no such format.
    """
    check_format(form)
    if form == "json":
        return json_lines(_document(story, found))
    name = "explain.md.jinja" if form == "markdown" else "explain.txt.jinja"
    width = None if form == "markdown" else width
    metrics = _table(story.metrics, width and width - len(INDENT))
    text = environment().get_template(name).render(story=story, metrics=metrics)
    return wrapped(tidy(text), width)


def _document(story: Story, found: Comparison) -> dict[str, Any]:
    """The story as data: what the comparison's document says of it, and the figures."""
    whole = document(found)
    kept = ("schema_version", "verdict", "first_line", "first_difference", "differences")
    return {
        **{key: whole[key] for key in kept},
        "happened": list(story.happened),
        "diagnosis": whole["diagnosis"],
        "metrics": [
            {
                "name": row.name,
                "baseline": row.values[0],
                "current": row.values[1],
                "unit": row.unit,
            }
            for row in story.metrics
        ],
    }


def _table(rows: Sequence[MetricRow], width: int | None) -> list[str]:
    cells = [(row.name, row.baseline, row.current, row.change) for row in rows]
    return aligned(fitting([HEADINGS, *cells], width))
