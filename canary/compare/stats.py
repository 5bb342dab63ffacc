"""The public entry: records in, a comparison out. No clock, no network, no torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from canary.baseline.comparability import (
    how_it_ended,
    judgeable,
    mismatch,
    named_twice,
    probe_alone,
    same_runs,
)
from canary.compare.alerts import alert_checks, alerts_of
from canary.compare.bottlenecks import new_bottlenecks
from canary.compare.diagnosis.source_changes import SourceChanges
from canary.compare.diagnosis.suspects import Diagnosis
from canary.compare.exact.changes import config_changes
from canary.compare.exact.lane import exact_lane, newest_probed
from canary.compare.heuristics import analyze_regression, with_likely_cause
from canary.compare.invariants.checks import invariant_checks
from canary.compare.memory import memory_checks
from canary.compare.missing import with_what_was_lost
from canary.compare.report import Check, Comparison
from canary.compare.stability import stability_checks
from canary.compare.thresholds import DEFAULT_THRESHOLDS, Thresholds
from canary.compare.timing.checks import TIMING_GATES, timing_checks
from canary.compare.timing.cpu_time import settled
from canary.compare.timing.lane import FAMILY_BUDGET, Metric
from canary.compare.timing.noise import NoiseModel
from canary.compare.timing.side_figures import figures_of_checks, side_of
from canary.compare.timing.within_run import within_run_checks
from canary.compare.verdict import MIN_HISTORY, decide, first_line, with_the_change
from canary.errors import InputError
from canary.record.folder import load_record
from canary.record.types import RunRecord

CRASHED = ("failed", "oom", "timeout")
NO_DIFFERENCE = "the probe saw no difference from the baseline in what both sides recorded"


def load_metrics(path: Path | str) -> RunRecord:
    """Reads a record from a run's folder or its `metrics.json`.

    Raises:
        InputError: nothing there.
        RecordError: there, but not readable, not strict JSON, or of another schema.
    """
    return load_record(path)


def compare_to_baseline(
    current: RunRecord | Sequence[RunRecord],
    baseline: RunRecord | Sequence[RunRecord],
    thresholds: Thresholds = DEFAULT_THRESHOLDS,
    *,
    paired: bool = False,
    noise: NoiseModel | None = None,
    history: bool = False,
    anchor: Sequence[RunRecord] = (),
    budget: float = FAMILY_BUDGET,
    gates: Sequence[Metric] = TIMING_GATES,
    accept: str | None = None,
    source: SourceChanges | None = None,
) -> Comparison:
    """Did the current side get worse than the baseline, and how sure is that?

    Args:
        current: one record, or several of one commit.
        baseline: one record, or several; with `history`, those of a stored history, of which at
            least three are needed to gate.
        thresholds: what may change before a check fails.
        paired: the records of both sides ran alternately, the i-th of one beside the i-th of the
            other (`canary ab`).
        noise: the measured noise of this canary on this class of runner.
        history: whether `baseline` is a stored history.
        anchor: the first runs after the last accepted change, for the drift since then.
        budget: false alarms allowed to the family of timing gates.
        gates: timing gates to judge.
        accept: a person's reason for accepting a change of what is learned.
        source: what the commits changed, as evidence for the diagnosis.

    Raises:
        InputError: no current record, or one run on both sides.
    """
    now = _in_order(current)
    before = _in_order(baseline)
    _require_distinct(now, before)
    good = [record for record in before if not judgeable(record)]
    refused = _refusal(now, before, good, paired)
    if refused is None:
        options = _Timing(thresholds, paired, noise, anchor, budget, gates)
        compare = _first_runs if not good else _compare
        refused = compare(now, good, options, history, accept)
    found = _with_sides(refused, now, good or before)
    notes = (*found.notes, *_left_out(before, good))
    found = replace(found, alerts=alerts_of(now), notes=notes)
    judged = found.verdict != "error" and now[-1].status == "completed"
    # Where both sides fail after their training, their probes still tell what differs.
    told = good or [record for record in before if record.exact]
    seen = found if judged else _with_what_differs(found, now, told, thresholds)
    diagnosis = Diagnosis()
    if found.verdict != "error" or _alike(now, told):
        diagnosis = analyze_regression(seen, now, told if seen is not found else good, source)
    if seen is not found and _both_probed(now, told):
        found = _with_what_the_probe_saw(found, seen)
    line = with_likely_cause(found.first_line, found.verdict, diagnosis)
    return replace(found, first_line=line, diagnosis=diagnosis)


def _with_sides(
    found: Comparison, now: Sequence[RunRecord], before: Sequence[RunRecord]
) -> Comparison:
    current, baseline = side_of(now), side_of(before)
    was, shown = figures_of_checks(found.checks, baseline.summary, current.summary)
    return replace(
        found, current=replace(current, summary=shown), baseline=replace(baseline, summary=was)
    )


def _left_out(before: Sequence[RunRecord], good: Sequence[RunRecord]) -> tuple[str, ...]:
    """Why runs of the baseline are not among those compared."""
    unused = [judgeable(record) for record in before if record not in good] if good else []
    return tuple(f"left out of the baseline: {reason}" for reason in unused)


def _require_distinct(now: Sequence[RunRecord], before: Sequence[RunRecord]) -> None:
    """Raises InputError where there is no current run, or one run stands twice."""
    if not now:
        raise InputError("no current run to compare")
    copies = [*named_twice(now), *named_twice(before)]
    if copies:
        raise InputError(
            f"run {copies[0]} is named twice on one side: a copy is not a second run",
            "name it once",
        )
    twice = same_runs(now, before)
    if twice:
        raise InputError(
            f"run {twice[0]} is on both sides: a run equals itself and proves nothing",
            "name two different runs",
        )


def _with_what_differs(
    refused: Comparison,
    now: Sequence[RunRecord],
    good: Sequence[RunRecord],
    thresholds: Thresholds,
) -> Comparison:
    """For the diagnosis of a run that failed: what its probe, if it came so far, and its config
    tell. It is judged by none of it."""
    if not good or mismatch(good[-1], now[-1]):
        return refused
    lane = exact_lane(now, good, thresholds)
    broken = [check for check in invariant_checks(now, good) if check.failed]
    return replace(
        refused,
        checks=(*lane.checks, *broken),
        first_difference=lane.first,
        differences=lane.differences,
        config_changes=lane.config_changes,
        environment_changes=lane.environment_changes,
        notes=(*refused.notes, *lane.notes),
    )


def _alike(now: Sequence[RunRecord], before: Sequence[RunRecord]) -> bool:
    """Whether all are runs of one trainer, model family and machine: between others everything
    differs, and no difference is a cause."""
    return not any(mismatch(record, now[-1]) for record in (*before, *now))


def _both_probed(now: Sequence[RunRecord], good: Sequence[RunRecord]) -> bool:
    return bool(good and newest_probed(good).exact and newest_probed(now).exact)


def _with_what_the_probe_saw(found: Comparison, seen: Comparison) -> Comparison:
    """Shows the differences of a run that ended; no check of them, for it is not judged."""
    silent = not seen.differences and seen.notes == found.notes
    return replace(
        found,
        notes=(*seen.notes, NO_DIFFERENCE) if silent else seen.notes,
        first_difference=seen.first_difference,
        differences=seen.differences,
        config_changes=seen.config_changes,
        environment_changes=seen.environment_changes,
    )


@dataclass(frozen=True)
class _Timing:
    thresholds: Thresholds
    paired: bool
    noise: NoiseModel | None
    anchor: Sequence[RunRecord]
    budget: float
    gates: Sequence[Metric]


def _refusal(
    now: Sequence[RunRecord], before: Sequence[RunRecord], good: Sequence[RunRecord], paired: bool
) -> Comparison | None:
    """The answer where nothing can be judged: a crash, an unusable run, no common ground."""
    crash = _crashed(now, good)
    if crash:
        other = mismatch(good[-1], now[-1])
        if other:
            return Comparison("error", f"Error: not comparable, {other}.")
        return Comparison("regression", crash)
    problem = next(filter(None, map(judgeable, now)), "")
    if not problem and before and not good:
        problem = f"{judgeable(before[-1])} (baseline)"
    if not problem and paired and len(good) != len(before):
        unusable = next(record for record in before if record not in good)
        problem = f"{judgeable(unusable)} (baseline)"
    problem = problem or _not_one_thing(now)
    if not problem:
        problem = next(filter(None, (mismatch(record, now[-1]) for record in (*good, *now))), "")
        problem = problem and f"not comparable, {problem}"
    return Comparison("error", f"Error: {problem}.") if problem else None


def _not_one_thing(now: Sequence[RunRecord]) -> str:
    """Why the current runs are not repeats of one thing; empty where they are."""
    commits = {str(record.git["sha"])[:9] for record in now if record.git.get("sha")}
    if len(commits) > 1:
        return f"the current runs are of several commits ({', '.join(sorted(commits))}); name one"
    for record in now[:-1]:
        for change in config_changes(record, now[-1]):
            if not change.cosmetic:
                return f"the current runs have several configs ({change.key} differs); name one"
    return ""


def _first_runs(
    now: Sequence[RunRecord],
    good: Sequence[RunRecord],
    options: _Timing,
    history: bool,
    accept: str | None,
) -> Comparison:
    """Without any baseline: invariants and absolute limits alone."""
    checks = (
        *invariant_checks(now),
        *stability_checks(now, good, options.thresholds),
        *alert_checks(now, good),
    )
    verdict = decide(checks, enough_history=False)
    return Comparison(verdict, first_line(verdict, checks, None, (), (), history=0), checks)


def _compare(
    now: Sequence[RunRecord],
    good: Sequence[RunRecord],
    options: _Timing,
    history: bool,
    accept: str | None,
) -> Comparison:
    exact = exact_lane(now, good, options.thresholds, options.noise)
    found: list[Check] = [
        *_measured(now, good, options),
        *alert_checks(now, good),
        *invariant_checks(now, good),
        *exact.checks,
    ]
    found = with_what_was_lost(found, now, good, options.thresholds)
    checks = with_the_change(found, exact.environment_changes)
    verdict = decide(checks, enough_history=not history or len(good) >= MIN_HISTORY)
    accepted = accept if verdict == "changed" else None
    return Comparison(
        verdict=verdict,
        first_line=first_line(
            verdict,
            checks,
            exact.first,
            exact.config_changes,
            exact.environment_changes,
            history=len(good),
            accepted=accepted,
        ),
        checks=checks,
        first_difference=exact.first,
        differences=exact.differences,
        config_changes=exact.config_changes,
        environment_changes=exact.environment_changes,
        accepted=accepted,
        notes=(*exact.notes, *new_bottlenecks(now, good)),
    )


def _measured(
    now: Sequence[RunRecord], good: Sequence[RunRecord], options: _Timing
) -> Iterator[Check]:
    """The checks of what measured launches tell; one that says so where a side has none."""
    if any(map(probe_alone, (*now, *good))):
        why = "a side ran its probe alone (repeats: 0)"
        yield Check("step_time_median", "performance", "timing", "skip", why, unjudged="untimed")
        return
    timed = timing_checks(
        now,
        good,
        options.thresholds,
        paired=options.paired,
        noise=options.noise,
        anchor=options.anchor,
        budget=options.budget,
        gates=options.gates,
    )
    yield from settled(timed, now, good, paired=options.paired, noise=options.noise)
    yield from within_run_checks(now, good, options.thresholds)
    yield from memory_checks(now, good, options.thresholds)
    yield from stability_checks(now, good, options.thresholds)


def _in_order(side: RunRecord | Sequence[RunRecord]) -> list[RunRecord]:
    """A side as a list. Sorting by time makes its order as given irrelevant."""
    records = [side] if isinstance(side, RunRecord) else list(side)
    return sorted(records, key=lambda record: (record.timestamp, record.run_id))


def _crashed(current: Sequence[RunRecord], good_baseline: Sequence[RunRecord]) -> str:
    """The sentence for a current side that crashed at least twice where the baseline completes."""
    crashed = [record for record in current if record.status in CRASHED]
    if len(crashed) < 2 or len(crashed) < len(current) or not good_baseline:
        return ""
    last = crashed[-1]
    return (
        f"Regression: the current side ended {len(crashed)} times as {last.status} where the "
        f"baseline completes: {how_it_ended(last)}."
    )


__all__ = [
    "Check",
    "Comparison",
    "compare_to_baseline",
    "load_metrics",
]
