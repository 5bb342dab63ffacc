"""The exact lane: compares signals without noise, stage by stage.

The current record is compared with the newest baseline record. Signals that differ between
repeated runs (of the baseline, or of a noise model) are not judged.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from canary.baseline.comparability import is_imported
from canary.compare.checks import check_of
from canary.compare.commands import without_repeats
from canary.compare.diagnosis.suspects import simple
from canary.compare.exact.changes import (
    change_difference,
    changed_options,
    config_changes,
    environment_changes,
)
from canary.compare.exact.counts import work_checks
from canary.compare.exact.inputs_stages import INPUTS, not_seen
from canary.compare.exact.learning_stages import LEARNING, LENGTH, length_of
from canary.compare.exact.rollout_stage import rollout_differences, steps_with_same_completions
from canary.compare.exact.sides import Sides, is_finite
from canary.compare.exact.stages import (
    LEARNED_STAGES,
    OUTCOME_STAGES,
    STAGE_OF,
    compared_stages,
    equal_outcomes,
    recorded_on_both,
)
from canary.compare.exact.tolerances import BITS, Tolerance, arithmetic_of
from canary.compare.report import Check, CheckStatus, Difference, KeyChange, Moved, Records
from canary.compare.thresholds import DEFAULT_THRESHOLDS, Thresholds
from canary.compare.timing.noise import NoiseModel
from canary.record.types import RunRecord

SIGNALS = (*INPUTS, rollout_differences, *LEARNING)
"""The signals of learning: equal, or within the tolerance of rounding. The place of each is that of
its stage. Counts of work have a table of their own (`canary.compare.exact.counts`)."""
REPEATS_LOOKED_AT = 4
NOT_REPEATED = "differs between repeated runs of the baseline or the noise model"
OF_ROLLOUT = "values computed from the completions"
NO_SIGNALS = "imported, without exact signals"
ARITHMETIC = 1e-2
"""A larger relative difference between repeated runs is not rounding in another order."""
SEEDS = {
    "data": "the rows differ: seed how the rows are chosen",
    "batches": "the batches differ: seed the split, the shuffle and the sampler",
    "model": "the initial parameters differ: set the seed before the model is created",
}
"""The seed that is missing, by the first stage that repeated runs do not share."""


@dataclass(frozen=True)
class ExactResult:
    """The checks and differences that the lane found."""

    checks: tuple[Check, ...]
    differences: tuple[Difference, ...]
    config_changes: tuple[KeyChange, ...]
    environment_changes: tuple[KeyChange, ...]
    notes: tuple[str, ...]


def learned_differences(
    baseline: RunRecord, current: RunRecord, allowed: Tolerance | None = None
) -> list[Difference]:
    """Return the differences in learning, in the order of time.

    `allowed`: tolerances other than those of the current record's dtype."""
    sides = Sides(baseline, current, allowed)
    found = [one for signal in SIGNALS for one in signal(sides)]
    return sorted(found, key=lambda d: d.when)


def newest_looked(records: Records) -> RunRecord:
    """Return the newest record with a look, or the newest of all if none has one."""
    return next((record for record in reversed(records) if record.exact), records[-1])


def most_different(records: Records, baseline: RunRecord) -> RunRecord:
    """Return the record with the most differences (the newest of equals): a fault in one of
    several runs is a fault."""
    newest = newest_looked(records)
    looked = [record for record in records if record.exact]
    if len(looked) < 2 or not baseline.exact:
        return newest
    return max(reversed(looked), key=lambda record: len(learned_differences(baseline, record)))


def each_look(records: Records) -> list[RunRecord]:
    """Return a record for each launch with a look: the run's own, with the signals of that look."""
    found: list[RunRecord] = []
    for record in records:
        further = ({"exact": look, "further_looks": []} for look in record.further_looks)
        found += [*(record.model_copy(update=one) for one in further), record]
    return found


def _same_code(one: RunRecord, other: RunRecord) -> bool:
    if one.run_id == other.run_id:
        return True
    clean = not one.git.get("dirty") and not other.git.get("dirty")
    return clean and bool(one.git.get("sha")) and one.git.get("sha") == other.git.get("sha")


def equal_runs(records: Records, same_code: bool = False) -> list[RunRecord]:
    """Return the looks that repeat the newest one: same clean commit, config, environment.

    `same_code`: all records are known to be of one state of the code."""
    newest = newest_looked(records)
    return [
        record
        for record in records
        if record.exact
        and record is not newest
        and (same_code or _same_code(record, newest))
        and all(change.cosmetic for change in config_changes(record, newest))
        and all(change.cosmetic for change in environment_changes(record, newest))
    ][-REPEATS_LOOKED_AT:]


def all_differences(baseline: RunRecord, current: RunRecord) -> list[Difference]:
    """Return all differences in learning and work, whatever their size."""
    return [
        *learned_differences(baseline, current),
        *work_checks(baseline, current, DEFAULT_THRESHOLDS)[1],
    ]


def inexact_signals(records: Records, same_code: bool) -> dict[str, float]:
    """Return signals that differ between repeated looks, with the largest relative difference."""
    seen: dict[str, float] = {}
    newest = newest_looked(records)
    if not newest.exact:
        return seen
    for record in equal_runs(records, same_code):
        for found in all_differences(record, newest):
            size = math.inf if found.relative is None else found.relative
            seen[_key(found)] = max(seen.get(_key(found), 0.0), size)
    return seen


def exact_lane(
    current: Records,
    baseline: Records,
    thresholds: Thresholds,
    noise: NoiseModel | None = None,
    *,
    paired: bool = False,
) -> ExactResult:
    """Compare the newest look of the baseline with the current one that differs most from it.

    Both sides are in order of time and not empty. `paired`: all runs of a side are of one code."""
    current, baseline = each_look(current), each_look(baseline)
    before = newest_looked(baseline)
    after = most_different(current, before)
    config, environment = config_changes(before, after), environment_changes(before, after)
    options = changed_options(before, after)
    if _only(options, config, environment) and not learned_differences(before, after):
        # The new command trains the same, so its words do not explain a change of work or memory.
        config = tuple(replace(change, cosmetic=True) for change in config)
    else:
        config = without_repeats(config, options)
    links = [*change_difference("environment", environment), *change_difference("config", config)]
    reason = _why_not_compared(before, after)
    if reason is not None:
        lost = bool(before.exact) and not after.exact and not is_imported(after)
        status: CheckStatus = "inconclusive" if lost else "skip"
        checks = [check_of(stage, status, reason) for stage in compared_stages(before, after)]
        return ExactResult(tuple(checks), tuple(links), config, environment, (reason,))
    known = (noise.inexact if noise else {}) | inexact_signals(baseline, paired)
    everything = [
        difference
        for difference in learned_differences(before, after)
        if recorded_on_both(difference.stage, before, after)
    ]
    learned, allowed = _split(everything, known)
    unseeded = _not_reproducible(allowed)
    if unseeded is not None:
        known |= {_key(found): math.inf for found in everything if _follows_a_seed(found)}
        learned, allowed = _split(everything, known)
    checks = [
        *([unseeded] if unseeded else _repeatability(current, known, paired)),
        *_learned_checks(learned, everything, before, after, known),
    ]
    work, differing = work_checks(before, after, thresholds)
    kept, unsteady = _split(differing, known)
    signals = {d.signal for d in unsteady}
    work = [
        replace(c, status="skip", message=NOT_REPEATED) if c.name in signals else c for c in work
    ]
    notes = [f"{_key(d)}: not judged, {NOT_REPEATED}" for d in (*allowed, *unsteady)]
    ordered = sorted([*links, *learned, *kept], key=lambda d: d.when)
    return ExactResult((*checks, *work), tuple(ordered), config, environment, tuple(notes))


def _why_not_compared(before: RunRecord, after: RunRecord) -> str | None:
    sides = (("the baseline", before), ("the current side", after))
    imported = [side for side, record in sides if is_imported(record)]
    if imported:
        side = "both sides" if imported[1:] else imported[0]
        return f"{side} {'were' if imported[1:] else 'was'} {NO_SIGNALS}"
    missing = [side for side, record in sides if not record.exact]
    if missing:
        if missing[1:]:
            return "neither side has a look"
        found = after if before.exact else before
        why = found.unmeasured.get("exact", "")
        return f"{missing[0]} has no look{f' ({why})' if why else ''}"
    if before.first_step != after.first_step:
        starts = (f"{side} starts at step {record.first_step}" for side, record in sides)
        return f"{', '.join(starts)}: one of them resumed from a checkpoint"
    return None


def _split(
    found: Sequence[Difference], known: Mapping[str, float]
) -> tuple[list[Difference], list[Difference]]:
    """Return (differences that count, differences that repeated runs show too)."""
    counting: list[Difference] = []
    allowed: list[Difference] = []
    for one in found:
        seen = known.get(_key(one))
        # At most three times what repeated runs showed.
        repeats = seen is not None and (one.relative is None or one.relative <= 3 * seen)
        (allowed if repeats else counting).append(one)
    return counting, allowed


def _key(found: Difference) -> str:
    return f"{found.stage}.{found.signal}"


def _only(
    options: Sequence[KeyChange], config: Sequence[KeyChange], environment: Sequence[KeyChange]
) -> bool:
    """Whether all changes that are not cosmetic are words of the command."""
    relevant = [change for change in (*config, *environment) if not change.cosmetic]
    return bool(relevant) and all(change in options for change in relevant)


def _unsteady(
    stage: str, everything: Sequence[Difference], known: Mapping[str, float]
) -> Check | None:
    """Return the check of a stage whose differences repeated runs show too; None without any.

    Inconclusive if those runs differ by more than rounding can."""
    found = [d for d in everything if d.stage == stage]
    if not found:
        return None
    sizes = [known.get(_key(d), 0.0) for d in found if d.relative is not None]
    wild = stage in OUTCOME_STAGES and max(sizes, default=0.0) > ARITHMETIC
    words = f"{LEARNED_STAGES[stage]}: {NOT_REPEATED}"
    if wild and math.isfinite(max(sizes)):
        words += f" by up to {max(sizes):.1e}, more than rounding explains"
    return check_of(stage, "inconclusive" if wild else "skip", words)


def _not_recorded(stage: str, before: RunRecord, after: RunRecord) -> Check | None:
    """Return the check of a stage that a side did not record in full; None if both did."""
    words, one = LEARNED_STAGES[stage], STAGE_OF[stage]
    was, now = (one.named_in(record.exact) for record in (before, after))
    if was and now:
        steps, expected = (len(one.steps(r.exact)) if one.steps else 0 for r in (after, before))
        if stage == "rollout" and not steps_with_same_completions(before, after):
            return check_of(stage, "skip", f"{OF_ROLLOUT}: the completions differ from step 1 on")
        end = length_of(after)
        if steps >= (min(expected, end.steps) if end.known else expected):
            return None
        reason = f"{words}: equal for {steps} steps, but the baseline has {expected} (look_steps)"
        return check_of(stage, "inconclusive", reason)
    if not was and not now:
        return check_of(stage, "skip", f"{words}: recorded on neither side", unjudged="unrecorded")
    side = "baseline" if was else "current side"
    return check_of(stage, "inconclusive", f"{words}: recorded only on the {side}")


def _follows_a_seed(found: Difference) -> bool:
    """Whether a missing seed alone can cause this difference."""
    if found.stage == "data":
        return not found.signal.startswith("tokenizer")
    if found.stage == "model":
        return found.signal in ("parameters_sha256", "reference_sha256")
    if found.stage == "first_update":
        return found.signal != "learning_rate"
    return found.signal not in ("tensors_without_gradient", LENGTH)


def _not_reproducible(unsteady: Sequence[Difference]) -> Check | None:
    """Return the check of a baseline without a seed, None if its runs begin alike.

    `unsteady`: differences of the sides that repeated runs of the baseline show too."""
    stages = {found.stage for found in unsteady if _follows_a_seed(found)}
    seed = next((words for stage, words in SEEDS.items() if stage in stages), None)
    if seed is None:
        return None
    words = f"the training is not reproducible: in repeated runs of the baseline {seed}"
    return check_of("repeatability", "inconclusive", words, delta=float(len(unsteady)))


def _learned_checks(
    differences: Sequence[Difference],
    everything: Sequence[Difference],
    before: RunRecord,
    after: RunRecord,
    known: Mapping[str, float],
) -> list[Check]:
    """Return one check per stage, in the order of time. Inputs that differ while learning does not
    only warn."""
    outcome = any(d.stage in OUTCOME_STAGES for d in differences)
    tail = "" if outcome else equal_outcomes(before, after)
    rounded = {} if outcome else _rounded(before, after)
    checks = []
    begins = {d.stage: d.when for d in reversed(differences)}
    stages = compared_stages(before, after)
    unseen = not_seen(before, after)
    for stage in sorted(stages, key=lambda name: begins.get(name, (1, 1, 0))[1]):
        first = next((d for d in differences if d.stage == stage), None)
        seen = f", as far as seen: {unseen}" if unseen and stage == "batches" else ""
        checks.append(
            (_of_difference(first, "changed" if outcome else "warn", tail) if first else None)
            or _not_recorded(stage, before, after)
            or _unsteady(stage, everything, known)
            or rounded.get(stage)
            or check_of(stage, "pass", f"{stages[stage]}: equal{seen}", delta=0.0)
        )
    return checks


def _of_difference(first: Difference, status: CheckStatus, tail: str) -> Check:
    """Return the check of the stage whose first difference this is. Its delta is the change of a
    number, otherwise the count of items that differ."""
    was, now, delta, percent = first.baseline, first.current, float(first.count), None
    if is_finite(was) and is_finite(now):
        delta = float(now - was) or delta
        percent = 100.0 * (now / was - 1) if was and not first.scale else None
    numbers = Moved(baseline=simple(was), current=simple(now), delta=delta, delta_pct=percent)
    return check_of(first.stage, status, f"{first.detail}{tail}", **numbers)


def _rounded(before: RunRecord, after: RunRecord) -> dict[str, Check]:
    """Return checks of the stages whose values are equal within rounding, but not to the bit."""
    found: dict[str, Check] = {}
    for one in learned_differences(before, after, BITS):
        size = one.relative
        if one.stage in found or one.stage not in OUTCOME_STAGES or size is None:
            continue
        place = f" from step {one.step} on" if one.step else ""
        words = (
            f"{LEARNED_STAGES[one.stage]}: equal within rounding of {arithmetic_of(after)}; "
            f"{one.signal.replace('_', ' ')} differs{place} by up to {size:.1e}"
        )
        found[one.stage] = check_of(one.stage, "pass", words, delta=size)
    return found


def _repeatability(current: Records, known: Mapping[str, float], paired: bool) -> list[Check]:
    """Warn if the baseline is reproducible and the current side is not."""
    new = {key for key in inexact_signals(current, paired) if key not in known}
    if not new:
        return []
    words = (
        f"repeated runs of the current side differ in {', '.join(sorted(new)[:3])}; "
        "those of the baseline do not"
    )
    return [check_of("repeatability", "warn", words, delta=float(len(new)))]
