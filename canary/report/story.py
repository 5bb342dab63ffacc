"""The story of a comparison: what happened, why, what to do, and both sides' figures."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from canary.compare.checks import CHECKS
from canary.compare.report import Check, Comparison
from canary.compare.timing.phases import phase_growth
from canary.record.types import RunRecord
from canary.report.bisect_hint import Hint, Known, hint_of
from canary.report.document import document, json_lines
from canary.report.escape import on_lines
from canary.report.lines import aligned, fitting, wrapped
from canary.report.numbers import amount, signed
from canary.report.place_rows import PlaceRow, compared
from canary.report.render import INDENT, check_format, environment, tidy
from canary.report.view import GROUPS, SUMMARY_ROWS, SuspectRow, scaled, view_of

TIME = tuple(name for name, row in CHECKS.items() if row.clock)
HEADINGS = ("metric", "baseline", "current", "change")
TIMED = ("step_time_median_s", "step_time_mean_s", "step_time_p95_s", "tokens_per_sec")
"""Figures of the summary that come from the clock."""
NOISE = "too noisy to tell"
"""Shown beside a timing's change if the step time may be unchanged."""
LEAST_PHASE = 0.01
"""Fraction of a step; shorter phases are not listed."""


@dataclass(frozen=True)
class MetricRow:
    """One figure on both sides, as text and as numbers."""

    name: str
    baseline: str
    current: str
    change: str
    values: tuple[float, float]
    unit: str


@dataclass(frozen=True)
class Story:
    """Everything that `canary explain` shows."""

    first_line: str
    happened: tuple[str, ...]
    note: str
    """Shown above the suspects, or instead of them."""
    suspects: tuple[SuspectRow, ...]
    chain: tuple[str, ...]
    actions: tuple[str, ...]
    metrics: tuple[MetricRow, ...]
    hint: Hint | None = None
    """How to find the culprit."""


def story_of(
    found: Comparison,
    current: Sequence[RunRecord],
    baseline: Sequence[RunRecord],
    known: Known | None = None,
) -> Story:
    """Return the story of a comparison of these records."""
    view = view_of(found)
    return on_lines(
        Story(
            first_line=found.first_line,
            happened=(*map(_placed, view.places), *_failures(found)),
            note=_note(found),
            suspects=view.suspects,
            chain=view.chain,
            actions=view.suspects[0].actions if view.suspects else (),
            metrics=tuple(_metrics(found, current, baseline)),
            hint=hint_of(found, current, baseline, known or Known()),
        )
    )


def _placed(row: PlaceRow) -> str:
    note = f" {row.note}" if row.note else ""
    return f"{row.where}{note}{f': {row.text}' if row.text else ''}"


def _metrics(
    found: Comparison, current: Sequence[RunRecord], baseline: Sequence[RunRecord]
) -> Iterator[MetricRow]:
    if compared(found):
        noisy = _noisy(found)
        yield from _summary(found, noisy)
        yield from _phases(found, current, baseline, noisy)


def _failures(found: Comparison) -> Iterator[str]:
    """Yield a sentence per failed check, in the order of the tables."""
    for check in sorted(found.failed_checks, key=lambda check: GROUPS.index(check.group)):
        yield _failed(check)


def _failed(check: Check) -> str:
    """Return a sentence; an exact stage's message does not name the stage, so add its name."""
    stage = check.lane == "exact" and check.group == "correctness"
    return f"{check.name}: {check.message}" if stage else check.message


def _note(found: Comparison) -> str:
    if found.verdict == "error":
        if found.diagnosis.suspects:
            return "The runs could not be judged. They differ in this:"
        return "The runs were not compared. Nothing is known beyond the error above."
    if found.verdict in ("regression", "changed"):
        return ""
    if found.diagnosis.suspects:
        return "It is not decided whether anything got worse. If it did, this may be the cause:"
    return "Nothing is known to be worse, and no recorded fact points to a cause."


def _noisy(found: Comparison) -> bool:
    """Return whether step time was judged and each of its checks is too noisy to tell."""
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
    """Return the story as text, Markdown or JSON. Text has lines that fit the width, if there is
    one.

    Raises:
        UsageError: unknown format.
    """
    check_format(form)
    if form == "json":
        return json_lines(_document(story, found))
    name = "explain.md.jinja" if form == "markdown" else "explain.txt.jinja"
    width = None if form == "markdown" else width
    metrics = _table(story.metrics, width and width - len(INDENT))
    text = environment().get_template(name).render(story=story, metrics=metrics)
    return wrapped(tidy(text), width, [story.hint.command] if story.hint else ())


def _document(story: Story, found: Comparison) -> dict[str, Any]:
    """Return the story as data: parts of the comparison's document, and the figures."""
    whole = document(found)
    kept = ("schema_version", "verdict", "first_line", "first_difference", "differences")
    return {
        **{key: whole[key] for key in kept},
        "happened": list(story.happened),
        "diagnosis": whole["diagnosis"],
        "bisect": None if story.hint is None else asdict(story.hint),
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
