"""The exact lane: what has no noise, stage by stage, in order.

The candidate's record is held against the newest of the baseline's. Signals that differ between
equal runs (the baseline's own repeats, or a noise model) leave the lane by themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from canary.collect.record import RunRecord
from canary.compare.changes import change_difference, config_changes, environment_changes
from canary.compare.inputs_stages import batch_differences, data_differences, model_differences
from canary.compare.learning_stages import (
    first_gradient_differences,
    first_loss_differences,
    first_update_differences,
    trajectory_differences,
)
from canary.compare.noise import NoiseModel
from canary.compare.report import Check, CheckStatus, Difference, KeyChange
from canary.compare.thresholds import DEFAULT_THRESHOLDS, Thresholds
from canary.compare.tolerances import Widened, tolerance_for
from canary.compare.work import work_checks

LEARNED_STAGES: dict[str, str] = {
    "data": "dataset and tokenizer",
    "batches": "the batches that enter each step",
    "model": "the initial model",
    "first_loss": "the loss of step 1",
    "first_gradient": "the gradient of step 1",
    "first_update": "the first update and the learning rates",
    "trajectory": "the losses that follow",
}
RECORDED: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    "data": lambda exact: exact.get("data"),
    "batches": lambda exact: exact.get("batches"),
    "model": lambda exact: exact.get("model"),
    "first_loss": lambda exact: exact.get("first_loss", {}).get("loss") is not None,
    "first_gradient": lambda exact: exact.get("first_gradient"),
    "first_update": lambda exact: (
        exact.get("first_update") and exact.get("trajectory", {}).get("learning_rates")
    ),
    "trajectory": lambda exact: exact.get("trajectory", {}).get("losses"),
}
"""Whether a probe recorded a stage: what nobody recorded is not equal."""
OUTCOME_STAGES = ("first_loss", "first_gradient", "first_update", "trajectory")
"""Stages that show what is learned; the ones before them are what it is learned from."""
REPEATS_LOOKED_AT = 4


@dataclass(frozen=True)
class ExactResult:
    """What the lane found."""

    checks: tuple[Check, ...]
    differences: tuple[Difference, ...]
    config_changes: tuple[KeyChange, ...]
    environment_changes: tuple[KeyChange, ...]
    notes: tuple[str, ...]

    @property
    def first(self) -> Difference | None:
        """The difference of the earliest stage."""
        return self.differences[0] if self.differences else None


def learned_differences(baseline: RunRecord, current: RunRecord) -> list[Difference]:
    """Differences of stages 2 to 8, in order."""
    tolerance = tolerance_for(current)
    found = [
        *data_differences(baseline, current),
        *batch_differences(baseline, current),
        *model_differences(baseline, current),
        *first_loss_differences(baseline, current, tolerance),
        *first_gradient_differences(baseline, current, tolerance),
        *first_update_differences(baseline, current, tolerance),
        *trajectory_differences(baseline, current, tolerance),
    ]
    return sorted(found, key=lambda difference: difference.order)


def newest_probed(records: Sequence[RunRecord]) -> RunRecord:
    """The newest record of a side that has a probe; the newest of all where none has."""
    return next((record for record in reversed(records) if record.exact), records[-1])


def equal_runs(records: Sequence[RunRecord]) -> list[RunRecord]:
    """Those of a side that repeat its newest one: same clean commit, config and environment."""
    newest = newest_probed(records)
    sha = newest.git.get("sha")
    if not sha or newest.git.get("dirty"):
        return []
    return [
        record
        for record in records
        if record.exact
        and record is not newest
        and record.git.get("sha") == sha
        and not record.git.get("dirty")
        and not any(not c.cosmetic for c in config_changes(record, newest))
        and not any(not c.cosmetic for c in environment_changes(record, newest))
    ][-REPEATS_LOOKED_AT:]


def all_differences(baseline: RunRecord, current: RunRecord) -> list[Difference]:
    """Differences of stages 2 to 11, whatever their size."""
    return [
        *learned_differences(baseline, current),
        *work_checks(baseline, current, DEFAULT_THRESHOLDS)[1],
    ]


def inexact_signals(records: Sequence[RunRecord]) -> dict[str, float]:
    """Signals that differ between equal runs, with the largest relative difference seen."""
    seen: dict[str, float] = {}
    newest = newest_probed(records)
    if not newest.exact:
        return seen
    for record in equal_runs(records):
        for found in all_differences(record, newest):
            key = f"{found.stage}.{found.signal}"
            size = float("inf") if found.relative is None else found.relative
            seen[key] = max(seen.get(key, 0.0), size)
    return seen


def exact_lane(
    current: Sequence[RunRecord],
    baseline: Sequence[RunRecord],
    thresholds: Thresholds,
    noise: NoiseModel | None = None,
) -> ExactResult:
    """Compares the newest record of each side; both sides in order of time, neither empty."""
    before, after = newest_probed(baseline), newest_probed(current)
    config, environment = config_changes(before, after), environment_changes(before, after)
    links = [
        *change_difference("environment", 0, environment),
        *change_difference("config", 1, config),
    ]
    explained = any(not change.cosmetic for change in (*config, *environment))
    missing = [
        side for side, record in (("baseline", before), ("current", after)) if not record.exact
    ]
    if missing:
        reason = f"the {' and the '.join(missing)} has no probe (probe_steps: 0)"
        checks = [Check(s, "correctness", "exact", "skip", reason) for s in LEARNED_STAGES]
        return ExactResult(tuple(checks), tuple(links), config, environment, (reason,))
    own = inexact_signals(baseline)
    known = Widened({**(noise.inexact if noise else {}), **own})
    everything = learned_differences(before, after)
    learned = [d for d in everything if not known.allows(d.stage, d.signal, d.relative)]
    checks = [
        *_learned_checks(learned, explained, before, after),
        *_repeatability(current, known),
    ]
    work, differing = work_checks(before, after, thresholds)
    unsteady = [d for d in differing if known.allows(d.stage, d.signal, d.relative)]
    work = [_not_judged(c) if any(c.name == d.signal for d in unsteady) else c for c in work]
    notes = [
        f"{d.stage}.{d.signal} differs between equal runs of the baseline: not judged"
        for d in (*everything, *unsteady)
        if d not in learned
    ]
    kept = [d for d in differing if d not in unsteady]
    ordered = sorted([*links, *learned, *kept], key=lambda d: d.order)
    return ExactResult((*checks, *work), tuple(ordered), config, environment, tuple(notes))


def _not_judged(check: Check) -> Check:
    return replace(check, status="skip", message="differs between equal runs of the baseline")


def _not_recorded(stage: str, before: RunRecord, after: RunRecord) -> Check | None:
    """The check of a stage that a side did not record; None where both did."""
    words = LEARNED_STAGES[stage]
    was, now = (bool(RECORDED[stage](record.exact)) for record in (before, after))
    if was and now:
        return None
    if not was and not now:
        return Check(stage, "correctness", "exact", "skip", f"{words}: recorded on neither side")
    side = "baseline" if was else "current side"
    return Check(
        stage, "correctness", "exact", "inconclusive", f"{words}: recorded on the {side} alone"
    )


def _learned_checks(
    differences: Sequence[Difference], explained: bool, before: RunRecord, after: RunRecord
) -> list[Check]:
    """One check a stage. Inputs that differ while nothing learned does are worth a warning."""
    outcome = any(d.stage in OUTCOME_STAGES for d in differences)
    checks = []
    for stage, words in LEARNED_STAGES.items():
        found = [d for d in differences if d.stage == stage]
        if not found:
            checks.append(
                _not_recorded(stage, before, after)
                or Check(stage, "correctness", "exact", "pass", f"{words}: equal", delta=0.0)
            )
            continue
        status: CheckStatus = "warn"
        if outcome:
            status = "changed" if explained else "fail"
        tail = "" if outcome else "; loss, gradient and update are equal"
        first = found[0]
        checks.append(
            Check(
                stage,
                "correctness",
                "exact",
                status,
                f"{first.detail or first.sentence()}{tail}",
                baseline=_shown(first.baseline),
                current=_shown(first.current),
                delta=_numeric_delta(first),
                delta_pct=_percent_delta(first),
            )
        )
    return checks


def _shown(value: object) -> float | int | str | None:
    return value if isinstance(value, float | int | str) or value is None else str(value)


def _numeric_delta(difference: Difference) -> float:
    """The change of a number, otherwise how many items differ; never null for a failed check."""
    was, now = difference.baseline, difference.current
    if isinstance(was, int | float) and isinstance(now, int | float) and was == was and now == now:
        return float(now - was) or float(difference.count)
    return float(difference.count)


def _percent_delta(difference: Difference) -> float | None:
    was, now = difference.baseline, difference.current
    if isinstance(was, int | float) and isinstance(now, int | float) and was:
        return 100.0 * (now / was - 1)
    return None if difference.relative is None else 100 * difference.relative


def _repeatability(current: Sequence[RunRecord], known: Widened) -> list[Check]:
    """Whether the current side repeats itself where the baseline does."""
    if len(current) < 2 or not newest_probed(current).exact:
        return []
    own = {key for key in inexact_signals(current) if key not in known.seen}
    if not own:
        return []
    return [
        Check(
            "repeatability",
            "correctness",
            "exact",
            "warn",
            f"equal runs of the current side differ in {', '.join(sorted(own)[:3])}; "
            "those of the baseline do not",
            delta=float(len(own)),
        )
    ]
