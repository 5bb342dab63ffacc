"""Checks that the baseline has data for and the current side does not: they never pass.

A record compared with itself shows which checks it has data for.
"""

from __future__ import annotations

from collections.abc import Sequence

from canary.baseline.comparability import is_imported, look_alone, untimed
from canary.compare.checks import CHECKS
from canary.compare.exact.lane import exact_lane, most_different, newest_looked
from canary.compare.memory import memory_checks
from canary.compare.report import Check, CheckStatus, Numbers
from canary.compare.rules import RULES
from canary.compare.rules.comparison import rule_checks
from canary.compare.stability import stability_checks
from canary.compare.thresholds import Thresholds
from canary.compare.timing.checks import timing_checks
from canary.compare.timing.lane import DRIFTS, GATE_WEIGHTS, Metric
from canary.record.types import RunRecord

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
    checks: Sequence[Check],
    current: Sequence[RunRecord],
    baseline: Sequence[RunRecord],
    thresholds: Thresholds,
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
