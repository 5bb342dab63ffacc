"""Finds the learning stages that two records can be compared in. Pure."""

from __future__ import annotations

import hashlib

from canary.compare.exact.rollout_stage import STAGE as ROLLOUT
from canary.compare.exact.rollout_stage import not_compared, recorded
from canary.compare.exact.stages import LEARNED_STAGES as LEARNED_STAGES
from canary.compare.exact.stages import OUTCOME_STAGES as OUTCOME_STAGES
from canary.compare.exact.stages import STAGE_OF, STAGES
from canary.compare.report import Check
from canary.record.types import RunRecord


def recorded_on_both(stage: str, before: RunRecord, after: RunRecord) -> bool:
    """Whether both looks recorded the stage."""
    return all(STAGE_OF[stage].recorded(record.exact) for record in (before, after))


def losses_recorded(before: RunRecord, after: RunRecord) -> bool:
    """Whether both looks recorded losses."""
    return all(_named("trajectory", record) for record in (before, after))


def equal_outcomes(before: RunRecord, after: RunRecord) -> str:
    """Return the end of a sentence about inputs that differ: the outcomes that are equal."""
    both = [s.outcome for s in STAGES if s.outcome and recorded_on_both(s.name, before, after)]
    if not both:
        return "; loss, gradient and update were not recorded on both sides"
    named = f"{', '.join(both[:-1])} and {both[-1]}" if both[1:] else both[0]
    return f"; {named} {'are' if both[1:] else 'is'} equal"


def compared_stages(before: RunRecord, after: RunRecord) -> dict[str, str]:
    """Return the compared stages with their words; rollouts only if a side recorded them."""
    has_rollouts = recorded(before) or recorded(after)
    items = LEARNED_STAGES.items()
    return {name: words for name, words in items if has_rollouts or name != ROLLOUT}


def _named(stage: str, record: RunRecord) -> bool:
    """Whether the record has what the stage's words name: the trajectory needs losses, although
    its metrics and norms are compared without them."""
    one = STAGE_OF[stage]
    return bool((one.named or one.recorded)(record.exact))


NOTHING = hashlib.sha256().hexdigest()


def _of_nothing(record: RunRecord) -> bool:
    """Whether all batch hashes are of empty input, which older versions could record."""
    return all(m.get("sha256") == NOTHING for step in record.exact["batches"] for m in step)


def not_recorded(stage: str, before: RunRecord, after: RunRecord) -> Check | None:
    """Return the check of a stage that a side did not record in full; None if both did."""
    words, series = LEARNED_STAGES[stage], STAGE_OF[stage].steps
    skipped = not_compared(before, after) if stage == ROLLOUT else None
    if skipped is not None:
        return skipped
    was, now = (_named(stage, record) for record in (before, after))
    if stage == "batches" and was != now and _of_nothing(before if was else after):
        was = now = False
    if was and now:
        steps, expected = (len(series(r.exact)) if series else 0 for r in (after, before))
        if steps >= expected:
            return None
        reason = f"{words}: equal for {steps} steps, but the baseline has {expected} (look_steps)"
        return Check(stage, "correctness", "exact", "inconclusive", reason)
    if not was and not now:
        reason = f"{words}: recorded on neither side"
        return Check(stage, "correctness", "exact", "skip", reason, unjudged="unrecorded")
    side = "baseline" if was else "current side"
    return Check(
        stage, "correctness", "exact", "inconclusive", f"{words}: recorded only on the {side}"
    )
