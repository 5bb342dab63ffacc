"""The public entry point: records in, a comparison out. Needs no clock, network or torch."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from canary.baseline.comparability import (
    how_it_ended,
    is_imported,
    judgeable,
    look_alone,
    mismatch,
    named_twice,
    same_runs,
    why_not_timed,
)
from canary.compare.alerts import alert_checks, alerts_of, new_bottlenecks
from canary.compare.causes.settings import FIRST_EFFECT
from canary.compare.commands import setting_name
from canary.compare.diagnosis.changed_settings import category_of
from canary.compare.diagnosis.source_changes import SourceChanges
from canary.compare.diagnosis.suspects import Diagnosis, RegressionCategory
from canary.compare.exact.changes import change_difference, config_changes
from canary.compare.exact.lane import ExactResult, exact_lane, most_different, newest_looked
from canary.compare.exact.recorded_stages import LEARNED_STAGES
from canary.compare.heuristics import analyze_regression
from canary.compare.invariants.checks import invariant_checks
from canary.compare.memory import memory_checks
from canary.compare.metrics.checks import metric_gate_checks
from canary.compare.missing import with_missing_checks, without_values
from canary.compare.places import changed_places
from canary.compare.report import Check, CheckStatus, Comparison, KeyChange, Places
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
from canary.errors import InputError
from canary.record.folder import load_record
from canary.record.types import RunRecord

COSTLY = re.compile(
    r"(max|min)_.*(length|tokens)|.*batch_size|gradient_accumulation.*|num_generations|packing.*"
    r"|padding.*|pad_to_multiple_of|optim|use_peft|lora_r|r|target_modules|model_name.*"
)
"""Names of settings that learn otherwise and also change the time and memory of a step."""
CRASHED = ("failed", "oom", "timeout")
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
    _require_distinct(now, before)
    good = [record for record in before if not judgeable(record)]
    refused = _refusal(now, before, good, paired)
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
    if found.verdict != "error" or _comparable(now, looked):
        diagnosis = analyze_regression(seen, now, looked if seen is not found else good, source)
    if seen is not found and _both_looked(now, looked):
        found = _with_look_differences(found, seen)
    return replace(found, diagnosis=diagnosis)


def _effect_first(changes: Sequence[KeyChange], checks: Sequence[Check]) -> tuple[KeyChange, ...]:
    """Return changed keys, those first that can cause what the checks found: a step that costs
    more, else the first stage of learning that differs."""
    loud = [check for check in checks if check.status == "fail"]
    loud = loud or [check for check in checks if check.failed]
    costs = any(check.group in ("memory", "performance") for check in loud)
    stage = None if costs else next((c.name for c in loud if c.name in LEARNED_STAGES), None)

    def acts(change: KeyChange) -> bool:
        name = setting_name(change.key)
        stages = FIRST_EFFECT.get(category_of(name) or RegressionCategory.CONFIG, ())
        return stage in stages or (costs and COSTLY.fullmatch(name) is not None)

    return tuple(sorted(changes, key=lambda change: not acts(change)))


def _places(
    now: Sequence[RunRecord],
    good: Sequence[RunRecord],
    exact: ExactResult,
    source: SourceChanges | None,
) -> Places:
    before = newest_looked(good)
    settings = (exact.config_changes, exact.environment_changes)
    return changed_places(before, most_different(now, before), source, exact.differences, *settings)


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


def _require_distinct(now: Sequence[RunRecord], before: Sequence[RunRecord]) -> None:
    """Raise InputError if there is no current run, or a run is named twice."""
    if not now:
        raise InputError("no current run to compare")
    copies = [*named_twice(now), *named_twice(before)]
    if copies:
        raise InputError(
            f"run {copies[0]} is named twice on one side: it counts as one run", "name it once"
        )
    twice = same_runs(now, before)
    if twice:
        raise InputError(
            f"run {twice[0]} is on both sides: comparing a run with itself proves nothing",
            "name two different runs",
        )


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
    places = _places(now, good, lane, source)
    broken = [check for check in invariant_checks(now, good) if check.failed]
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


def _comparable(now: Sequence[RunRecord], before: Sequence[RunRecord]) -> bool:
    """Whether all runs have one trainer, model family and machine type: otherwise everything
    differs, and no difference is a cause."""
    return not any(mismatch(record, now[-1]) for record in (*before, *now))


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


def _refusal(
    now: Sequence[RunRecord], before: Sequence[RunRecord], good: Sequence[RunRecord], paired: bool
) -> Comparison | None:
    """Return the answer if nothing can be judged: a crash, or runs that cannot be compared."""
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
    """Return why the current runs are not repeats of one commit and config; empty if they are."""
    commits = {str(record.git["sha"])[:9] for record in now if record.git.get("sha")}
    if len(commits) > 1:
        found = ", ".join(sorted(commits))
        return f"the current runs are of several commits ({found}); name runs of one commit"
    for record in now[:-1]:
        for change in config_changes(record, now[-1]):
            if not change.cosmetic:
                return f"the configs of the current runs differ in {change.key}; name one run"
    return ""


def _first_runs(
    now: Sequence[RunRecord],
    good: Sequence[RunRecord],
    options: _Options,
    history: bool,
    accept: str | None,
) -> Comparison:
    """Judge runs without a baseline, only by invariants and absolute limits."""
    checks = (
        *invariant_checks(now),
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
    found: list[Check] = [
        *_measured(now, good, options),
        *options.metric_checks(now, good),
        *alert_checks(now, good),
        *invariant_checks(now, good),
        *exact.checks,
    ]
    mixed = len({is_imported(record) for record in (*now, *good)}) > 1
    # Only the baseline decides: a run cannot leave the exact lane out by calling itself imported.
    imported = all(map(is_imported, good))
    if not mixed:
        found = with_missing_checks(found, now, good, options.thresholds)
    if any(not change.cosmetic for change in config_changes(good[-1], now[-1])):
        found = [
            replace(check, status="changed")
            if check.name == "steps_trained" and check.status == "fail"
            else check
            for check in found
        ]
    checks = with_acceptance(found, exact.environment_changes)
    config = _effect_first(exact.config_changes, checks)
    link = {one.stage: one for one in change_difference("config", config)}
    differences = tuple(link.get(one.stage, one) for one in exact.differences)
    first = differences[0] if differences else None
    exact = replace(exact, config_changes=config)
    places = _places(now, good, exact, options.source)
    same_program = (
        places.known
        and not places.ran
        and all(check.delta == 0 for check in exact.checks if check.status in ("pass", "warn"))
    )
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
            differences,
            config,
            exact.environment_changes,
            history=len(good),
            accepted=accepted,
            imported=imported,
            same_program=same_program,
        ),
        checks=checks,
        first_difference=first,
        differences=differences,
        config_changes=config,
        environment_changes=exact.environment_changes,
        places=places,
        accepted=accepted,
        notes=(*exact.notes, *((ONLY_SHARED,) * mixed), *new_bottlenecks(now, good)),
    )


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


def _crashed(current: Sequence[RunRecord], good_baseline: Sequence[RunRecord]) -> str:
    """Return the first line if all current runs (at least two) crash and the baseline completes."""
    crashed = [record for record in current if record.status in CRASHED]
    if len(crashed) < 2 or len(crashed) < len(current) or not good_baseline:
        return ""
    last = crashed[-1]
    return (
        f"Regression: all {len(crashed)} current runs ended early ({last.status}), but the "
        f"baseline completes: {how_it_ended(last)}."
    )


__all__ = ["Check", "Comparison", "compare_to_baseline", "load_metrics"]
