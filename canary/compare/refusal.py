"""What cannot be judged: runs (a crash, another machine, several commits), and checks for which
only the baseline has data. Those never pass.

A record compared with itself shows which checks it has data for.
"""

from __future__ import annotations

from collections.abc import Sequence

from canary.baseline.comparability import (
    how_it_ended,
    is_imported,
    look_alone,
    mismatch,
    named_twice,
    same_runs,
    untimed,
    why_not_judged,
)
from canary.compare.checks import CHECKS
from canary.compare.exact.changes import config_changes
from canary.compare.exact.lane import exact_lane, most_different, newest_looked
from canary.compare.memory import memory_checks
from canary.compare.report import Check, CheckStatus, Comparison, Numbers, Records
from canary.compare.rules import RULES
from canary.compare.rules.comparison import rule_checks
from canary.compare.stability import stability_checks
from canary.compare.thresholds import Thresholds
from canary.compare.timing.checks import timing_checks
from canary.compare.timing.lane import DRIFTS, GATE_WEIGHTS, Metric
from canary.compare.verdict import LONGEST, cut_to_fit
from canary.errors import InputError
from canary.protocol.failure import named_error, split_place
from canary.record.types import RunRecord

CRASHED = ("failed", "oom", "timeout")


def require_distinct(now: Records, before: Records) -> None:
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


def refusal(now: Records, before: Records, good: Records, paired: bool) -> Comparison | None:
    """Return the answer if nothing can be judged: a crash, or runs that cannot be compared."""
    crash = _crashed(now, good)
    if crash:
        other = mismatch(good[-1], now[-1])
        if other:
            return Comparison("error", f"Error: not comparable, {other}.")
        return Comparison("regression", crash)
    problem = next(filter(None, map(why_not_judged, now)), "")
    if not problem and before and not good:
        problem = f"{why_not_judged(before[-1])} (baseline)"
    if not problem and paired and len(good) != len(before):
        unusable = next(record for record in before if record not in good)
        problem = f"{why_not_judged(unusable)} (baseline)"
    problem = problem or _not_one_thing(now)
    if not problem:
        problem = next(filter(None, (mismatch(record, now[-1]) for record in (*good, *now))), "")
        problem = problem and f"not comparable, {problem}"
    return Comparison("error", f"Error: {problem}.") if problem else None


def _not_one_thing(now: Records) -> str:
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


def _crashed(current: Records, good_baseline: Records) -> str:
    """Return the first line if all current runs (at least two) crash and the baseline completes."""
    crashed = [record for record in current if record.status in CRASHED]
    if len(crashed) < 2 or len(crashed) < len(current) or not good_baseline:
        return ""
    reason = current[-1].reason or how_it_ended(current[-1])
    start, end = "Regression: ", f", in the {len(current)} current runs only."
    # The second line names the place, with the whole error.
    words = named_error(reason) or split_place(reason)[0]
    return f"{start}{cut_to_fit(words.rstrip('.'), LONGEST - len(start) - len(end))}{end}"


MISSING = "recorded on the baseline but not in run"
WALL_AND_MEMORY: tuple[Metric, ...] = tuple(
    metric for metric in GATE_WEIGHTS if metric not in DRIFTS and CHECKS[metric].clock != "cpu"
)
"""CPU time is left out: if it is missing, for example with a second thread, wall time decides."""


def _of_launches(record: RunRecord, thresholds: Thresholds) -> dict[str, Check]:
    """Return by name the checks that a record's launches have data for."""
    side = [record]
    bare = is_imported(record) and untimed(record)
    gates: tuple[Metric, ...] = ("max_memory",) if bare else WALL_AND_MEMORY
    return _judged(
        *timing_checks(side, side, thresholds, gates=gates),
        *memory_checks(side, side, thresholds),
        *stability_checks(side, side, thresholds),
    )


def _of_look(record: RunRecord, thresholds: Thresholds) -> dict[str, Check]:
    """Return by name the checks that a record's look has data for; empty without a look."""
    if not record.exact:
        return {}
    # Of one look: how repeated ones differ is no data that the other side must have.
    side = [record.model_copy(update={"further_looks": []})]
    return _judged(*rule_checks(side), *exact_lane(side, side, thresholds).checks)


def _judged(*checks: Check) -> dict[str, Check]:
    return {check.name: check for check in checks if check.status != "skip"}


def with_missing_checks(
    checks: Sequence[Check], current: Records, baseline: Records, thresholds: Thresholds
) -> list[Check]:
    """Return the checks, with missing ones as `inconclusive` unless they failed.

    Covers the launches of every current record, and the compared look if there is one. A training
    that ended after its look on purpose lacks nothing."""
    before = newest_looked(baseline)
    timed = [] if look_alone(before) else [one for one in current if not look_alone(one)]
    asked = [(_of_launches, one) for one in timed]
    after = most_different(current, before)
    if after.exact:
        asked.append((_of_look, after))
    expected = {having: having(before, thresholds) for having in {one for one, _ in asked}}
    missing: dict[str, Check] = {}
    for having, record in asked:
        found = having(record, thresholds)
        for name, check in expected[having].items():
            if name not in found:
                title = CHECKS[name].title if name in CHECKS else name
                words = f"{title}: {MISSING} {record.run_id}{_why_not(name, record)}"
                missing[name] = without_values(check, "inconclusive", words)
    failed = {check.name for check in checks if check.failed}
    kept = [check for check in checks if check.name not in missing or check.name in failed]
    return [*kept, *(check for name, check in missing.items() if name not in failed)]


def _why_not(name: str, record: RunRecord) -> str:
    """Return why a rule was not checked, as the end of a sentence; empty for other checks."""
    said = next((rule.judge(record) for rule in RULES if rule.id == name), None)
    return f": {said.words}" if said is not None and said.status == "not asked" else ""


def without_values(check: Check, status: CheckStatus, message: str) -> Check:
    """Return the check as one that was not judged: only the baseline's value is left."""
    known = Numbers(baseline=check.baseline, unit=check.unit, scale=check.scale)
    return Check(check.name, check.group, check.lane, status, message, **known)
