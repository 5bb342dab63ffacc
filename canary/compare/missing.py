"""What the baseline was judged by and the current side cannot be: never a pass.

A record is compared with itself, which tells what it holds: a check that is judged there for the
baseline, and skipped or absent there for the current side, has been lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from canary.compare.checks import CHECKS
from canary.compare.exact.lane import exact_lane, most_different, newest_probed
from canary.compare.invariants.checks import invariant_checks
from canary.compare.memory import memory_checks
from canary.compare.report import Check
from canary.compare.stability import stability_checks
from canary.compare.thresholds import Thresholds
from canary.compare.timing.checks import timing_checks
from canary.compare.timing.lane import DRIFTS, GATE_WEIGHTS, Metric
from canary.record.types import RunRecord

WALL_AND_MEMORY: tuple[Metric, ...] = tuple(
    metric for metric in GATE_WEIGHTS if metric not in DRIFTS and CHECKS[metric].clock != "cpu"
)
"""Where CPU time is lost, as with a second thread, wall time still decides."""


def launch_checks(record: RunRecord, thresholds: Thresholds) -> dict[str, Check]:
    """What a measured launch is judged by where it is held against itself, by name."""
    side = [record]
    return _judged(
        *timing_checks(side, side, thresholds, gates=WALL_AND_MEMORY),
        *memory_checks(side, side, thresholds),
        *stability_checks(side, side, thresholds),
    )


def probe_checks(record: RunRecord, thresholds: Thresholds) -> dict[str, Check]:
    """What a probe is judged by where it is held against itself, by name; nothing without one."""
    if not record.exact:
        return {}
    side = [record]
    return _judged(*invariant_checks(side), *exact_lane(side, side, thresholds).checks)


def _judged(*checks: Check) -> dict[str, Check]:
    return {check.name: check for check in checks if check.status != "skip"}


def with_what_was_lost(
    checks: Sequence[Check],
    current: Sequence[RunRecord],
    baseline: Sequence[RunRecord],
    thresholds: Thresholds,
) -> list[Check]:
    """The checks, with those that were lost as `inconclusive`: of the launches of any current
    record, and of the probe that is compared. Of a side without a probe the exact lane says so."""
    before = newest_probed(baseline)
    lost: dict[str, Check] = {}

    def lose(expected: dict[str, Check], held: dict[str, Check], record: RunRecord) -> None:
        for name, check in expected.items():
            if name not in held:
                lost[name] = _lost(check, record)

    expected = launch_checks(before, thresholds)
    for record in current:
        lose(expected, launch_checks(record, thresholds), record)
    after = most_different(current, before)
    if after.exact:
        lose(probe_checks(before, thresholds), probe_checks(after, thresholds), after)
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
