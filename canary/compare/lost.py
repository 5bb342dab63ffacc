"""What the baseline was judged by and the current side cannot be: never a pass.

A record is compared with itself, which tells what it holds: a check that is judged there for the
baseline, and skipped or absent there for the current side, has been lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from canary.collect.record import RunRecord
from canary.compare.exact import exact_lane, newest_probed
from canary.compare.invariants import invariant_checks
from canary.compare.memory import memory_checks
from canary.compare.report import Check
from canary.compare.stability import stability_checks
from canary.compare.thresholds import Thresholds
from canary.compare.timing_checks import timing_checks


def own_checks(record: RunRecord, thresholds: Thresholds) -> dict[str, Check]:
    """The checks that are judged where a record is held against itself, by name."""
    side = [record]
    found = (
        *timing_checks(side, side, thresholds),
        *memory_checks(side, side, thresholds),
        *stability_checks(side, side, thresholds),
        *invariant_checks(side),
        *exact_lane(side, side, thresholds).checks,
    )
    return {check.name: check for check in found if check.status != "skip"}


def with_what_was_lost(
    checks: Sequence[Check],
    current: Sequence[RunRecord],
    baseline: Sequence[RunRecord],
    thresholds: Thresholds,
) -> list[Check]:
    """The checks, with those that were lost as `inconclusive`.

    Of a record without a probe the exact lane itself says so.
    """
    before = newest_probed(baseline)
    if not before.exact:
        return list(checks)
    expected = own_checks(before, thresholds)
    lost: dict[str, Check] = {}
    for record in current:
        held = own_checks(record, thresholds)
        for name, check in expected.items():
            needs_probe = check.lane in ("exact", "invariant") and not record.exact
            if name not in held and not needs_probe:
                lost[name] = _lost(check, record)
    decided = {check.name for check in checks if check.failed}
    kept = [check for check in checks if check.name not in lost or check.name in decided]
    return [*kept, *(check for name, check in lost.items() if name not in decided)]


def _lost(check: Check, record: RunRecord) -> Check:
    return replace(
        check,
        status="inconclusive",
        message=f"{check.name}: recorded on the baseline, not in run {record.run_id}",
        current=None,
        delta=None,
        delta_pct=None,
        interval=None,
        threshold=None,
        detectable=None,
        noise=None,
    )
