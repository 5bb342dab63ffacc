"""The view: a comparison as strings, for every renderer but JSON."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from canary.compare.checks import is_metric_gate, title_of
from canary.compare.diagnosis.suspects import RegressionCategory, Suspect
from canary.compare.place_words import SHOWN
from canary.compare.refusal import MISSING
from canary.compare.report import VERDICTS, Check, Comparison, KeyChange, Side, Verdict
from canary.compare.verdict import leading_failure
from canary.errors import counted, cut
from canary.record.jsonio import number
from canary.report.bisect_hint import Hint
from canary.report.numbers import amount, signed, significant
from canary.report.place_rows import (
    PlaceRow,
    compared,
    is_explained_crash,
    not_run,
    place_rows,
    to_do,
)

GROUPS = ("performance", "memory", "stability", "correctness")
STATUS_WORDS = {
    "fail": "FAIL",
    "changed": "CHANGED",
    "warn": "warn",
    "inconclusive": "?",
    "pass": "ok",
    "skip": "skipped",
}
SUMMARY_ROWS = (
    ("step time, median", "step_time_median_s", "ms", 1000.0),
    ("step time, mean", "step_time_mean_s", "ms", 1000.0),
    ("step time, p95", "step_time_p95_s", "ms", 1000.0),
    ("tokens per second", "tokens_per_sec", "", 1.0),
    ("peak memory", "max_mem_mb", "MB", 1.0),
    ("final loss", "final_loss", "", 1.0),
    ("NaN steps", "nan_steps", "", 1),
    ("Inf steps", "inf_steps", "", 1),
)
LONGEST_VALUE = 60
SHOWN_ALERTS = 8
WHY = "Likely cause"
NOT_FOUND = "Cause not found"
WHY_UNDECIDED = "Possible cause, if it is worse"
TOO_NOISY = "too noisy to tell"
BELOW_LIMIT = "unclear, below limit"
"""Instead, if even the worst end of the interval is below the limit."""
TELLS_NOTHING = 100.0
"""A wider interval, in percent of the baseline, is useless to a reader."""


@dataclass(frozen=True)
class CheckRow:
    """One check as shown."""

    name: str
    group: str
    baseline: str
    current: str
    change: str
    interval: str
    threshold: str
    detectable: str
    status: str
    """One of STATUS_WORDS."""
    passed: bool
    message: str
    title: str
    """What it is about, in plain words."""


@dataclass(frozen=True)
class SuspectRow:
    """One suspect as shown."""

    category: str
    confidence: str
    description: str
    evidence: tuple[str, ...]
    actions: tuple[str, ...]


@dataclass(frozen=True)
class View:
    """Everything that a template shows, as strings."""

    verdict: str
    mark: str
    first_line: str
    places: tuple[PlaceRow, ...]
    """Changed places, best first."""
    more_places: int
    """Changed places that are not shown."""
    not_run: str
    """Changed code that did not run, in one sentence."""
    do: str
    """What to do, in one or two sentences."""
    name: str
    tier: str
    bare: bool
    """Whether it is an answer without any run, so that there is no summary."""
    baseline: str
    current: str
    summary: tuple[tuple[str, str, str], ...]
    rows: tuple[CheckRow, ...]
    skipped: tuple[CheckRow, ...]
    reasons: tuple[tuple[str, str], ...]
    """(names, reason) of the skipped checks; those of one reason together."""
    failed: tuple[CheckRow, ...]
    warned: tuple[CheckRow, ...]
    undecided: tuple[CheckRow, ...]
    remedy: str
    """What would decide several of them; their messages and the first line do not say it."""
    first_difference: str
    chain: tuple[str, ...]
    why: str
    """The suspects' heading."""
    suspects: tuple[SuspectRow, ...]
    alerts: tuple[str, ...]
    config: tuple[tuple[str, str, str], ...]
    environment: tuple[tuple[str, str, str], ...]
    notes: tuple[str, ...]
    noise: str
    hint: Hint | None = None
    """How to find the culprit."""


def view_of(found: Comparison, hint: Hint | None = None) -> View:
    """Return the view of a comparison. `hint`: how to find the culprit."""
    ordered = sorted(found.checks, key=lambda check: GROUPS.index(check.group))
    rows = {id(check): row_of(check) for check in ordered}

    def with_status(*statuses: str) -> tuple[CheckRow, ...]:
        return tuple(rows[id(check)] for check in ordered if check.status in statuses)

    undecided, remedy = _said_once(_together(with_status("inconclusive")))
    first, causes = found.first_difference, found.diagnosis.suspects
    skipped = [one for one in ordered if one.status == "skip" and one.unjudged != "inapplicable"]
    failed = [check for check in ordered if check.failed]
    if failed:
        # The first line is about this one.
        lead = leading_failure(found.checks)
        failed.sort(key=lambda check: check is not lead)
    return View(
        verdict=found.verdict,
        mark=VERDICTS[found.verdict].mark,
        first_line=found.first_line,
        places=(places := place_rows(found)),
        more_places=max(0, len(found.places.ran) - SHOWN + bool(found.places.failed))
        if places
        else 0,
        not_run=not_run(found),
        do=to_do(found, remedy),
        name=found.current.name or found.baseline.name,
        tier=found.tier,
        bare=found.verdict in ("error", "no-baseline")
        and not (found.baseline.run_ids or found.current.run_ids),
        baseline=side_words(found.baseline, found.verdict),
        current=side_words(found.current, found.verdict),
        summary=_summary(found.baseline, found.current) if compared(found) else (),
        rows=with_status("fail", "changed", "warn", "inconclusive", "pass"),
        skipped=tuple(rows[id(check)] for check in skipped),
        reasons=_reasons(skipped),
        failed=tuple(rows[id(check)] for check in failed),
        warned=with_status("warn"),
        undecided=undecided,
        remedy="" if not remedy or remedy in found.first_line else remedy,
        first_difference=first.sentence() if first else "",
        chain=tuple(difference.sentence() for difference in _chain(found)),
        why=_why(found),
        suspects=() if is_explained_crash(found) else tuple(map(_suspect, causes)),
        alerts=tuple(alert.sentence() for alert in found.alerts[:SHOWN_ALERTS]),
        config=_changes(found.config_changes),
        environment=_changes(found.environment_changes),
        notes=found.notes,
        noise=next((check.noise for check in found.checks if check.noise), ""),
        hint=hint,
    )


def _said_once(rows: tuple[CheckRow, ...]) -> tuple[tuple[CheckRow, ...], str]:
    """Return the rows without the last sentence that several messages share, and that sentence."""
    ends = Counter(row.message.rpartition(". ")[2] for row in rows if ". " in row.message)
    shared, count = ends.most_common(1)[0] if ends else ("", 0)
    if count < 2:
        return rows, ""
    tail = f". {shared}"
    return tuple(replace(row, message=row.message.removesuffix(tail)) for row in rows), shared


def _together(rows: tuple[CheckRow, ...]) -> tuple[CheckRow, ...]:
    """Return the rows with one for all checks that the same run lacks."""
    found: dict[str, CheckRow] = {}
    for row in rows:
        reason = row.message.partition(": ")[2]
        reason = reason if reason.startswith(MISSING) else row.message
        first = found.get(reason)
        if first is not None:
            names, titles = f"{first.name}, {row.name}", f"{first.title}, {row.title}"
            row = replace(row, name=names, title=titles, message=reason)
        found[reason] = row
    return tuple(found.values())


def _reasons(skipped: Iterable[Check]) -> tuple[tuple[str, str], ...]:
    names: dict[str, list[str]] = {}
    for check in skipped:
        names.setdefault(check.message, []).append(check.name)
    return tuple((", ".join(checks), message) for message, checks in names.items())


def _why(found: Comparison) -> str:
    if found.verdict in ("inconclusive", "pass"):
        return WHY_UNDECIDED
    named = {suspect.category for suspect in found.diagnosis.suspects}
    return NOT_FOUND if named == {RegressionCategory.UNKNOWN} else WHY


def _suspect(suspect: Suspect) -> SuspectRow:
    return SuspectRow(
        suspect.category.value,
        "" if suspect.category is RegressionCategory.UNKNOWN else f"{suspect.confidence:.0%}",
        suspect.description,
        tuple(f"{item.kind}: {cut(item.message)}" for item in suspect.evidence),
        suspect.suggested_actions,
    )


def verdict_count(verdict: str, count: int) -> str:
    """Return `2 regressions`, or `2 changed`."""
    noun = verdict in ("error", "regression")
    return counted(count, verdict) if noun else f"{count} {verdict}"


def _chain(found: Comparison) -> list[Any]:
    """Return the first difference of each stage."""
    stages: dict[str, Any] = {}
    for difference in found.differences:
        stages.setdefault(difference.stage, difference)
    return list(stages.values())


def row_of(check: Check) -> CheckRow:
    """Return one check as strings; `~` marks a change within the noise."""
    change = ""
    if (check.status != "skip" and check.baseline is not None) or check.lane == "exact":
        if check.delta == 0 and not check.in_noise:
            change = "="
        elif check.lane == "exact" and check.status == "pass" and check.group == "correctness":
            change = "rounding"
        elif check.delta is not None and not math.isfinite(check.delta):
            change = "not finite"
        elif check.delta_pct is not None and abs(check.delta_pct) < 1e6:
            change = signed(check.delta_pct)
        elif check.delta is not None:
            change = signed(check.delta, check.unit)
        if check.in_noise:
            change = f"~ {change}"
    interval = ""
    if _too_wide(check):
        interval = BELOW_LIMIT if check.status == "pass" else TOO_NOISY
    elif check.interval is not None:
        percent = check.scale == "%"
        low, high = (signed(end) if percent else significant(end, 3) for end in check.interval)
        interval = f"{low} to {high}{'' if percent else f' {check.scale}'}"
    return CheckRow(
        name=check.name,
        group=check.group,
        baseline=amount(check.baseline, check.unit),
        current=amount(check.current, check.unit),
        change=change,
        interval=interval,
        threshold=_limit_of(check),
        detectable=_detectable(check),
        status=STATUS_WORDS[check.status],
        passed=check.status == "pass",
        message=check.message,
        title=title_of(check.name),
    )


def _too_wide(check: Check) -> bool:
    """Return whether the interval includes zero and is wider than TELLS_NOTHING."""
    if not check.in_noise or check.interval is None or check.scale != "%":
        return False
    return check.interval[1] - check.interval[0] > TELLS_NOTHING


def _detectable(check: Check) -> str:
    """Return the detectable change. It is empty if the check passed although it exceeds the limit:
    the interval's upper end, which is below the limit, says more."""
    seen, limit = check.detectable, check.threshold
    if _too_wide(check):
        return ""
    if check.status == "pass" and seen is not None and limit is not None and abs(seen) > abs(limit):
        return ""
    return _limit(_unsigned(seen, check), check.scale)


def _unsigned(value: float | None, check: Check) -> float | None:
    """Return a percentage of a gate without the sign of its bad direction, as people write it."""
    of_gate = is_metric_gate(check.name) and check.scale == "%"
    return abs(value) if of_gate and value is not None else value


LONGEST_WRITTEN = 7
"""Characters of a percentage that a person writes."""


def _limit_of(check: Check) -> str:
    """Return a check's limit; a gate's number as it was written."""
    value = _unsigned(check.threshold, check)
    if value is None or not is_metric_gate(check.name):
        # A value that is no ratio itself has a limit in times the baseline.
        of_baseline = check.scale == "x" and check.unit != "x"
        return _limit(value, "x baseline" if of_baseline else check.scale)
    if check.scale == "%":
        written = f"{value:.10g}%"
        # The spread of a history gives more digits than anyone writes.
        return written if len(written) <= LONGEST_WRITTEN else _limit(value, "%")
    unit = "step" if check.scale == "steps" and value == 1 else check.scale
    return f"{value:g} {unit}".rstrip()


def _limit(value: float | None, scale: str) -> str:
    if value is None:
        return ""
    return f"{significant(value, 3)}{scale if scale == '%' else f' {scale}'.rstrip()}"


def side_words(side: Side, verdict: Verdict) -> str:
    """Return run, launches and commit of one side. An error may hide which runs there are."""
    if not side.run_ids:
        return "not compared" if verdict == "error" else "no runs"
    sha = f"commit {side.sha[:9]}{' with changes' if side.dirty else ''}" if side.sha else ""
    runs = side.run_ids[-1] if len(side.run_ids) == 1 else f"{len(side.run_ids)} runs"
    launches = f"{side.launches} launch{'es' if side.launches != 1 else ''} of {side.steps} steps"
    launches = launches if side.launches else "no timed launch"
    return ", ".join(filter(None, (runs, launches, sha)))


def _summary(baseline: Side, current: Side) -> tuple[tuple[str, str, str], ...]:
    if not baseline.run_ids or not current.run_ids:
        return ()
    figures = figures_of(baseline, current)
    return tuple(
        (label, amount(was, unit), amount(now, unit)) for _, label, unit, was, now in figures
    )


def figures_of(baseline: Side, current: Side) -> Iterator[tuple[str, str, str, Any, Any]]:
    """Yield key, label, unit and both values of each figure that a side has."""
    for label, key, unit, factor in SUMMARY_ROWS:
        was, now = (scaled(side.summary.get(key), factor) for side in (baseline, current))
        if was is not None or now is not None:
            yield key, label, unit, was, now


def scaled(value: Any, factor: float) -> Any:
    """Return the value in the unit shown; None stays None."""
    known = number(value)
    return None if known is None else known * factor


def _changes(changes: Sequence[KeyChange]) -> tuple[tuple[str, str, str], ...]:
    ordered = sorted(changes, key=lambda change: change.cosmetic)
    return tuple((cut(c.key), _value(c.baseline), _value(c.current)) for c in ordered)


def _value(value: Any) -> str:
    return cut("not set" if value is None else str(value), LONGEST_VALUE)
