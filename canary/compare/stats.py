"""The public entry point: records in, a comparison out. Needs no clock, network or torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from canary.baseline.comparability import (
    is_imported,
    look_alone,
    mismatch,
    why_not_judged,
    why_not_timed,
)
from canary.compare.causes.settings import likeliest_first
from canary.compare.checks import check_of
from canary.compare.diagnosis.source_changes import SourceChanges
from canary.compare.exact.changes import change_difference, config_changes
from canary.compare.exact.lane import ExactResult, exact_lane, most_different, newest_looked
from canary.compare.heuristics import analyze_regression
from canary.compare.memory import memory_checks
from canary.compare.metrics.judging import metric_gate_checks
from canary.compare.places import changed_places, places_of_failure
from canary.compare.refusal import refusal, require_distinct, with_missing_checks, without_values
from canary.compare.report import Check, CheckStatus, Comparison, Records
from canary.compare.rules.comparison import rule_checks
from canary.compare.stability import alert_checks, alerts_of, stability_checks
from canary.compare.thresholds import DEFAULT_THRESHOLDS, Thresholds
from canary.compare.timing.checks import TIMING_GATES, timing_checks
from canary.compare.timing.cpu_time import settled
from canary.compare.timing.lane import FAMILY_BUDGET, Metric
from canary.compare.timing.noise import NoiseModel
from canary.compare.timing.side_figures import side_of
from canary.compare.verdict import MIN_HISTORY, decide, first_line, with_acceptance
from canary.config.metric_gates import MetricGate
from canary.record.folder import load_record
from canary.record.types import RunRecord

NOT_ACCEPTED = "the reason for acceptance does not count: only `changed` can be accepted"
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
    current: RunRecord | Records,
    baseline: RunRecord | Records,
    thresholds: Thresholds = DEFAULT_THRESHOLDS,
    *,
    paired: bool = False,
    noise: NoiseModel | None = None,
    history: bool = False,
    anchor: Records = (),
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
    now, before = _in_order(current), _in_order(baseline)
    require_distinct(now, before)
    good = [record for record in before if not why_not_judged(record)]
    asked = _Asked(
        now, good, thresholds, paired, noise, history, anchor, budget, gates, metrics, source
    )
    found = refusal(now, before, good, paired) or asked.answer(accept)
    unused = [why_not_judged(record) for record in before if record not in good] if good else []
    notes = (*found.notes, *(f"left out of the baseline: {reason}" for reason in unused))
    # If both sides fail after training, their looks still show what differs.
    looked = good or [record for record in before if record.exact]
    found = asked.explained(replace(found, notes=notes), looked)
    return replace(
        found,
        current=side_of(now, found.checks, "current"),
        baseline=side_of(good or before, found.checks, "baseline"),
        alerts=alerts_of(now),
    )


@dataclass(frozen=True)
class _Asked:
    """Two sides that can be compared, and how; see `compare_to_baseline`."""

    now: Records
    good: Records
    """The baseline's runs that can be judged."""
    thresholds: Thresholds
    paired: bool
    noise: NoiseModel | None
    history: bool
    anchor: Records
    budget: float
    gates: Sequence[Metric]
    metrics: Sequence[MetricGate]
    source: SourceChanges | None

    def answer(self, accept: str | None) -> Comparison:
        """Judge the sides; runs without a baseline only by rules and absolute limits."""
        now, good = self.now, self.good
        if not good:
            checks = [*rule_checks(now), *stability_checks(now, good, self.thresholds)]
            checks += [*self._metric_checks(), *alert_checks(now, good)]
            found = Comparison(decide(checks, enough_history=False), "", tuple(checks))
            return replace(found, first_line=first_line(found, history=0))
        exact = exact_lane(now, good, self.thresholds, self.noise, paired=self.paired)
        mixed = len({is_imported(record) for record in (*now, *good)}) > 1
        judged = self._checks(exact, mixed)
        config = likeliest_first(exact.config_changes, judged)
        link = {one.stage: one for one in change_difference("config", config)}
        ordered = tuple(link.get(one.stage, one) for one in exact.differences)
        exact = replace(exact, config_changes=config, differences=ordered)
        # The verdict needs the places, so it comes after them.
        found = self.with_differences(Comparison("error", ""), exact, good, judged)
        same_program = (
            found.places.known
            and not found.places.ran
            and all(check.delta == 0 for check in exact.checks if check.status in ("pass", "warn"))
        )
        # Only the baseline decides: a run cannot leave the exact lane out by calling itself
        # imported.
        imported = all(map(is_imported, good))
        verdict = decide(
            judged,
            enough_history=not self.history or len(good) >= MIN_HISTORY,
            imported=imported,
            exact_only=all(map(look_alone, (*now, *good))),
            same_program=same_program,
        )
        found = replace(
            found,
            verdict=verdict,
            accepted=accept if verdict == "changed" else None,
            notes=(*exact.notes, *((ONLY_SHARED,) * mixed)),
        )
        if accept and verdict == "regression":
            found = replace(found, notes=(NOT_ACCEPTED, *found.notes))
        line = first_line(found, history=len(good), imported=imported, same_program=same_program)
        return replace(found, first_line=line)

    def explained(self, found: Comparison, looked: Records) -> Comparison:
        """Return the comparison with its diagnosis; if the run was not judged, also with what
        differs between the looks.

        `looked`: runs of the baseline, also failed ones if no other has a look."""
        now, shown, known = self.now, found, self.good
        judged = found.verdict != "error" and now[-1].status == "completed"
        if not judged and looked and not mismatch(looked[-1], now[-1]):
            # For the diagnosis only: these checks do not judge the run.
            lane = exact_lane(now, looked, self.thresholds)
            broken = [check for check in rule_checks(now, looked) if check.failed]
            seen = self.with_differences(found, lane, looked, (*lane.checks, *broken))
            known = looked
            if newest_looked(looked).exact and newest_looked(now).exact:
                silent = not seen.differences and seen.notes == found.notes
                notes = (*seen.notes, NO_DIFFERENCE) if silent else seen.notes
                shown = replace(seen, checks=found.checks, notes=notes)
            found = seen
        # On other machines, or of other trainers, everything differs, and no difference is a cause.
        if found.verdict == "error" and any(mismatch(one, now[-1]) for one in (*looked, *now)):
            return shown
        if self.good and now[-1].status != "completed":
            failed = places_of_failure(now[-1], self.good[-1], self.source, found.places)
            shown = replace(shown, places=failed) if failed.failed else shown
        return replace(shown, diagnosis=analyze_regression(found, now, known, self.source))

    def with_differences(
        self, found: Comparison, exact: ExactResult, looked: Records, checks: Sequence[Check]
    ) -> Comparison:
        """Return a comparison with what the exact lane found, and these checks."""
        before = newest_looked(looked)
        settings = (exact.config_changes, exact.environment_changes)
        after = most_different(self.now, before)
        return replace(
            found,
            checks=tuple(checks),
            first_difference=next(iter(exact.differences), None),
            differences=exact.differences,
            config_changes=exact.config_changes,
            environment_changes=exact.environment_changes,
            places=changed_places(before, after, self.source, exact.differences, *settings),
            notes=(*found.notes, *exact.notes),
        )

    def _checks(self, exact: ExactResult, mixed: bool) -> tuple[Check, ...]:
        """Return all checks of two sides. `mixed`: only one of them was imported."""
        now, good = self.now, self.good
        found: list[Check] = [*self._measured(), *self._metric_checks()]
        found += [*alert_checks(now, good), *rule_checks(now, good), *exact.checks]
        if not mixed:
            found = with_missing_checks(found, now, good, self.thresholds)
        if any(not change.cosmetic for change in config_changes(good[-1], now[-1])):
            found = [
                replace(check, status="changed")
                if check.name == "steps_trained" and check.status == "fail"
                else check
                for check in found
            ]
        return with_acceptance(found, exact.environment_changes)

    def _metric_checks(self) -> list[Check]:
        """Judge the gates of `metrics`; decisions of an A/B run share its error budget too."""
        alarms = min(1.0, self.budget / FAMILY_BUDGET) * self.thresholds.metric_false_alarms
        found = metric_gate_checks(self.now, self.good, self.metrics, alarms)
        if len({look_alone(record) for record in (*self.now, *self.good)}) > 1:
            # A look has other steps than a whole training.
            return [without_values(check, "skip", ONE_LOOK) for check in found]
        return found

    def _measured(self) -> Iterator[Check]:
        """Yield the checks of timed steps, or one skipped check if a side has none."""
        now, good, thresholds = self.now, self.good, self.thresholds
        alone = [all(map(look_alone, side)) for side in (now, good)]
        if any(map(look_alone, (*now, *good))):
            why = "both sides ended after their looks (exact: true)" if all(alone) else ONE_LOOK
            yield check_of("step_time_median", "skip", why, unjudged="untimed")
            return
        why = why_not_timed((*now, *good))
        timed = timing_checks(
            now,
            good,
            thresholds,
            paired=self.paired,
            noise=self.noise,
            anchor=() if why else self.anchor,
            budget=self.budget,
            gates=[gate for gate in self.gates if gate == "max_memory"] if why else self.gates,
        )
        if why:
            # A run that hides its machine does not pass by that.
            known = [all(record.env.get("device") for record in side) for side in (now, good)]
            status: CheckStatus = "inconclusive" if known == [False, True] else "skip"
            yield check_of("step_time_median", status, why, unjudged="untimed")
            yield from timed
        else:
            yield from settled(timed, now, good, paired=self.paired, noise=self.noise)
        yield from memory_checks(now, good, thresholds)
        yield from stability_checks(now, good, thresholds)


def _in_order(side: RunRecord | Records) -> list[RunRecord]:
    """Return a side as a list in order of time, so that the given order does not matter."""
    records = [side] if isinstance(side, RunRecord) else list(side)
    return sorted(records, key=lambda record: (record.timestamp, record.run_id))


__all__ = ["Check", "Comparison", "compare_to_baseline", "load_metrics"]
