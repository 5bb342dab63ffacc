"""The public entry point: records in, a comparison out. Needs no clock, network or torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from canary.baseline.comparability import (
    is_imported,
    judgeable,
    look_alone,
    mismatch,
    why_not_timed,
)
from canary.compare.alerts import alert_checks, alerts_of, new_bottlenecks
from canary.compare.changed import likeliest_first, places_of
from canary.compare.diagnosis.source_changes import SourceChanges
from canary.compare.diagnosis.suspects import Diagnosis
from canary.compare.exact.changes import change_difference, config_changes
from canary.compare.exact.lane import ExactResult, exact_lane, newest_looked
from canary.compare.heuristics import analyze_regression
from canary.compare.memory import memory_checks
from canary.compare.metrics.checks import metric_gate_checks
from canary.compare.missing import with_missing_checks, without_values
from canary.compare.refusal import comparable, refusal, require_distinct
from canary.compare.report import Check, CheckStatus, Comparison
from canary.compare.rules.comparison import rule_checks
from canary.compare.stability import stability_checks
from canary.compare.thresholds import DEFAULT_THRESHOLDS, Thresholds
from canary.compare.timing.checks import TIMING_GATES, timing_checks
from canary.compare.timing.cpu_time import settled
from canary.compare.timing.lane import FAMILY_BUDGET, Metric
from canary.compare.timing.noise import NoiseModel
from canary.compare.timing.side_figures import figures_of_checks, side_of
from canary.compare.timing.within_run import within_run_checks
from canary.compare.verdict import MIN_HISTORY, decide, first_line, with_acceptance
from canary.config.metric_gates import MetricGate
from canary.record.folder import load_record
from canary.record.types import RunRecord

ONLY_SHARED = (
    "one side was imported and the canary recorded the other: only what both have is compared"
)
ONE_LOOK = "one side ended after its look (exact: true)"
NO_DIFFERENCE = "the exact signals that both sides recorded are equal"


def load_metrics(path: Path | str) -> RunRecord:
    """Read a record from a run's folder or its `metrics.json`.

    Raises:
        InputError: the path is missing.
        RecordError: it is unreadable, not strict JSON, or of another schema.
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
    metrics: Sequence[MetricGate] = (),
    accept: str | None = None,
    source: SourceChanges | None = None,
) -> Comparison:
    """Judge whether the current side is worse than the baseline.

    Args:
        current: one record, or several of one commit.
        baseline: one record, or several; a `history` needs at least three to gate.
        thresholds: how much each check allows.
        paired: whether the sides ran alternately, the i-th runs next to each other (`canary ab`).
        noise: the measured noise of this canary on this machine type.
        history: whether `baseline` is a stored history.
        anchor: the first runs after the last accepted change, to measure drift since then.
        budget: the probability of a false alarm, shared by all timing gates.
        gates: the timing gates to judge.
        metrics: the gates on any metric (config key `metrics`), from the baseline's config.
        accept: a person's reason for accepting a change of learning.
        source: what the commits changed, as evidence for the diagnosis.

    Raises:
        InputError: there is no current record, or a run is named twice.
    """
    now = _in_order(current)
    before = _in_order(baseline)
    require_distinct(now, before)
    good = [record for record in before if not judgeable(record)]
    refused = refusal(now, before, good, paired)
    if refused is None:
        options = _Options(thresholds, paired, noise, anchor, budget, gates, metrics, source)
        compare = _first_runs if not good else _compare
        refused = compare(now, good, options, history, accept)
    found = _with_sides(refused, now, good or before)
    notes = (*found.notes, *_left_out(before, good))
    found = replace(found, alerts=alerts_of(now), notes=notes)
    judged = found.verdict != "error" and now[-1].status == "completed"
    # If both sides fail after training, their looks still show what differs.
    looked = good or [record for record in before if record.exact]
    seen = found if judged else _with_differences(found, now, looked, thresholds, source)
    diagnosis = Diagnosis()
    if found.verdict != "error" or comparable(now, looked):
        diagnosis = analyze_regression(seen, now, looked if seen is not found else good, source)
    if seen is not found and _both_looked(now, looked):
        found = _with_look_differences(found, seen)
    return replace(found, diagnosis=diagnosis)


def _with_sides(
    found: Comparison, now: Sequence[RunRecord], before: Sequence[RunRecord]
) -> Comparison:
    current, baseline = side_of(now), side_of(before)
    was, shown = figures_of_checks(found.checks, baseline.summary, current.summary)
    return replace(
        found, current=replace(current, summary=shown), baseline=replace(baseline, summary=was)
    )


def _left_out(before: Sequence[RunRecord], good: Sequence[RunRecord]) -> tuple[str, ...]:
    """Return notes on why baseline runs were left out."""
    unused = [judgeable(record) for record in before if record not in good] if good else []
    return tuple(f"left out of the baseline: {reason}" for reason in unused)


def _with_differences(
    refused: Comparison,
    now: Sequence[RunRecord],
    good: Sequence[RunRecord],
    thresholds: Thresholds,
    source: SourceChanges | None,
) -> Comparison:
    """Add the differences of config and look of a failed run, for its diagnosis only: they do not
    judge it."""
    if not good or mismatch(good[-1], now[-1]):
        return refused
    lane = exact_lane(now, good, thresholds)
    places = places_of(now, good, lane, source)
    broken = [check for check in rule_checks(now, good) if check.failed]
    return replace(
        refused,
        checks=(*lane.checks, *broken),
        first_difference=lane.first,
        differences=lane.differences,
        config_changes=lane.config_changes,
        environment_changes=lane.environment_changes,
        places=places,
        notes=(*refused.notes, *lane.notes),
    )


def _both_looked(now: Sequence[RunRecord], good: Sequence[RunRecord]) -> bool:
    return bool(good and newest_looked(good).exact and newest_looked(now).exact)


def _with_look_differences(found: Comparison, seen: Comparison) -> Comparison:
    """Show the differences of a failed run, without their checks: it is not judged by them."""
    silent = not seen.differences and seen.notes == found.notes
    return replace(
        found,
        notes=(*seen.notes, NO_DIFFERENCE) if silent else seen.notes,
        first_difference=seen.first_difference,
        differences=seen.differences,
        places=seen.places,
        config_changes=seen.config_changes,
        environment_changes=seen.environment_changes,
    )


@dataclass(frozen=True)
class _Options:
    thresholds: Thresholds
    paired: bool
    noise: NoiseModel | None
    anchor: Sequence[RunRecord]
    budget: float
    gates: Sequence[Metric]
    metrics: Sequence[MetricGate]
    source: SourceChanges | None

    def metric_checks(self, now: Sequence[RunRecord], good: Sequence[RunRecord]) -> list[Check]:
        """Judge the gates of `metrics`; decisions of an A/B run share its error budget too."""
        share = min(1.0, self.budget / FAMILY_BUDGET)
        gates = [gate.model_copy(update={"alpha": share * gate.alpha}) for gate in self.metrics]
        found = metric_gate_checks(now, good, gates, share * self.thresholds.metric_false_alarms)
        if len({look_alone(record) for record in (*now, *good)}) > 1:
            # A look has other steps than a whole training.
            return [without_values(check, "skip", ONE_LOOK) for check in found]
        return found


def _first_runs(
    now: Sequence[RunRecord],
    good: Sequence[RunRecord],
    options: _Options,
    history: bool,
    accept: str | None,
) -> Comparison:
    """Judge runs without a baseline, only by invariants and absolute limits."""
    checks = (
        *rule_checks(now),
        *stability_checks(now, good, options.thresholds),
        *options.metric_checks(now, good),
        *alert_checks(now, good),
    )
    verdict = decide(checks, enough_history=False)
    return Comparison(verdict, first_line(verdict, checks, (), (), (), history=0), checks)


def _compare(
    now: Sequence[RunRecord],
    good: Sequence[RunRecord],
    options: _Options,
    history: bool,
    accept: str | None,
) -> Comparison:
    exact = exact_lane(now, good, options.thresholds, options.noise, paired=options.paired)
    mixed = len({is_imported(record) for record in (*now, *good)}) > 1
    checks = _checks(now, good, options, exact, mixed)
    exact = _with_likeliest_first(exact, checks)
    places = places_of(now, good, exact, options.source)
    same_program = (
        places.known
        and not places.ran
        and all(check.delta == 0 for check in exact.checks if check.status in ("pass", "warn"))
    )
    # Only the baseline decides: a run cannot leave the exact lane out by calling itself imported.
    imported = all(map(is_imported, good))
    verdict = decide(
        checks,
        enough_history=not history or len(good) >= MIN_HISTORY,
        imported=imported,
        exact_only=all(map(look_alone, (*now, *good))),
        same_program=same_program,
    )
    accepted = accept if verdict == "changed" else None
    return Comparison(
        verdict=verdict,
        first_line=first_line(
            verdict,
            checks,
            exact.differences,
            exact.config_changes,
            exact.environment_changes,
            history=len(good),
            accepted=accepted,
            imported=imported,
            same_program=same_program,
        ),
        checks=checks,
        first_difference=exact.first,
        differences=exact.differences,
        config_changes=exact.config_changes,
        environment_changes=exact.environment_changes,
        places=places,
        accepted=accepted,
        notes=(*exact.notes, *((ONLY_SHARED,) * mixed), *new_bottlenecks(now, good)),
    )


def _checks(
    now: Sequence[RunRecord],
    good: Sequence[RunRecord],
    options: _Options,
    exact: ExactResult,
    mixed: bool,
) -> tuple[Check, ...]:
    """Return all checks of two sides. `mixed`: only one of them was imported."""
    found: list[Check] = [
        *_measured(now, good, options),
        *options.metric_checks(now, good),
        *alert_checks(now, good),
        *rule_checks(now, good),
        *exact.checks,
    ]
    if not mixed:
        found = with_missing_checks(found, now, good, options.thresholds)
    if any(not change.cosmetic for change in config_changes(good[-1], now[-1])):
        found = [
            replace(check, status="changed")
            if check.name == "steps_trained" and check.status == "fail"
            else check
            for check in found
        ]
    return with_acceptance(found, exact.environment_changes)


def _with_likeliest_first(exact: ExactResult, checks: Sequence[Check]) -> ExactResult:
    """Order the changed keys, also in the sentence of their difference."""
    config = likeliest_first(exact.config_changes, checks)
    link = {one.stage: one for one in change_difference("config", config)}
    differences = tuple(link.get(one.stage, one) for one in exact.differences)
    return replace(exact, config_changes=config, differences=differences)


def _measured(
    now: Sequence[RunRecord], good: Sequence[RunRecord], options: _Options
) -> Iterator[Check]:
    """Yield the checks of timed steps, or one skipped check if a side has none."""
    alone = [all(map(look_alone, side)) for side in (now, good)]
    if any(map(look_alone, (*now, *good))):
        why = "both sides ended after their looks (exact: true)" if all(alone) else ONE_LOOK
        yield Check("step_time_median", "performance", "timing", "skip", why, unjudged="untimed")
        return
    why = why_not_timed((*now, *good))
    timed = timing_checks(
        now,
        good,
        options.thresholds,
        paired=options.paired,
        noise=options.noise,
        anchor=() if why else options.anchor,
        budget=options.budget,
        gates=[gate for gate in options.gates if gate == "max_memory"] if why else options.gates,
    )
    if why:
        # A run that hides its machine does not pass by that.
        lost = all(record.env.get("device") for record in good) and not all(
            record.env.get("device") for record in now
        )
        status: CheckStatus = "inconclusive" if lost else "skip"
        yield Check("step_time_median", "performance", "timing", status, why, unjudged="untimed")
        yield from timed
    else:
        yield from settled(timed, now, good, paired=options.paired, noise=options.noise)
        yield from within_run_checks(now, good, options.thresholds)
    yield from memory_checks(now, good, options.thresholds)
    yield from stability_checks(now, good, options.thresholds)


def _in_order(side: RunRecord | Sequence[RunRecord]) -> list[RunRecord]:
    """Return a side as a list in order of time, so that the given order does not matter."""
    records = [side] if isinstance(side, RunRecord) else list(side)
    return sorted(records, key=lambda record: (record.timestamp, record.run_id))


__all__ = ["Check", "Comparison", "compare_to_baseline", "load_metrics"]
