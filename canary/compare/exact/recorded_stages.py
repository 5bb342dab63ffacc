"""Stages of what is learned, and which of them two records can be compared in. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

from canary.compare.exact.rollout_stage import STAGE as ROLLOUT
from canary.compare.exact.rollout_stage import not_compared, recorded
from canary.compare.report import Check
from canary.record.types import RunRecord

LEARNED_STAGES: dict[str, str] = {
    "data": "dataset and tokenizer",
    "batches": "the batches that enter each step",
    "model": "the initial model",
    "rollout": "what is made of the completions of step 1",
    "first_loss": "the loss of step 1",
    "first_gradient": "the gradient of step 1",
    "first_update": "the first update and the learning rates",
    "trajectory": "the losses that follow",
}


def _any_told(exact: Mapping[str, Any], series: str) -> bool:
    """Whether a step told a value: a list of nothing is not recorded."""
    told = exact.get("trajectory", {}).get(series) or ()
    return any(value is not None for value in told)


RECORDED: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    "data": lambda exact: exact.get("data"),
    "batches": lambda exact: exact.get("batches"),
    "model": lambda exact: exact.get("model"),
    "rollout": lambda exact: exact.get("rollout", {}).get("tokens"),
    "first_loss": lambda exact: exact.get("first_loss", {}).get("loss") is not None,
    "first_gradient": lambda exact: (
        exact.get("first_gradient", {}).get("total") is not None
        and exact["first_gradient"].get("groups")
    ),
    "first_update": lambda exact: (
        exact.get("first_update", {}).get("delta_norm") is not None
        and exact.get("trajectory", {}).get("learning_rates")
    ),
    "trajectory": lambda exact: (
        _any_told(exact, "losses") or _any_told(exact, "grad_norms") or _any_told(exact, "rl")
    ),
}
"""Whether a probe recorded a stage: what nobody recorded is not equal."""
OUTCOME_STAGES = ("rollout", "first_loss", "first_gradient", "first_update", "trajectory")
"""Stages that show what is learned; the ones before them are what it is learned from."""


def recorded_on_both(stage: str, before: RunRecord, after: RunRecord) -> bool:
    """Whether both probes have it."""
    return all(bool(RECORDED[stage](record.exact)) for record in (before, after))


def told_losses(before: RunRecord, after: RunRecord) -> bool:
    """Whether both probes have losses of steps."""
    return all(_told("trajectory", record) for record in (before, after))


OUTCOMES = {"first_loss": "loss", "first_gradient": "gradient", "first_update": "update"}


def equal_outcomes(before: RunRecord, after: RunRecord) -> str:
    """Of inputs that differ where no outcome does: which outcomes both sides recorded."""
    both = [words for stage, words in OUTCOMES.items() if recorded_on_both(stage, before, after)]
    if not both:
        return "; loss, gradient and update were not recorded on both sides"
    named = f"{', '.join(both[:-1])} and {both[-1]}" if both[1:] else both[0]
    return f"; {named} {'are' if both[1:] else 'is'} equal"


def _steps_of(stage: str, record: RunRecord) -> int:
    """Steps that a stage of many steps has; 0 for the others."""
    trajectory = record.exact.get("trajectory", {})
    found = {
        "batches": record.exact.get("batches"),
        "rollout": record.exact.get("rollout", {}).get("tokens"),
        "first_update": trajectory.get("learning_rates"),
        "trajectory": trajectory.get("losses"),
    }
    return len(found.get(stage) or [])


def compared_stages(before: RunRecord, after: RunRecord) -> dict[str, str]:
    """Those that are compared: rollouts where a side told of any."""
    told = recorded(before) or recorded(after)
    return {name: words for name, words in LEARNED_STAGES.items() if told or name != ROLLOUT}


def _told(stage: str, record: RunRecord) -> bool:
    """Whether the record has what the check of the stage names: of the trajectory its losses,
    though metrics and norms are compared without them."""
    if stage == "trajectory":
        return _any_told(record.exact, "losses")
    return bool(RECORDED[stage](record.exact))


NOTHING = hashlib.sha256().hexdigest()


def _of_nothing(record: RunRecord) -> bool:
    """Whether all batches are hashes of nothing, which older versions recorded."""
    return all(m.get("sha256") == NOTHING for step in record.exact["batches"] for m in step)


def not_recorded(stage: str, before: RunRecord, after: RunRecord) -> Check | None:
    """The check of a stage that a side did not record, or not as far; None where both did."""
    words = LEARNED_STAGES[stage]
    unlike = not_compared(before, after) if stage == ROLLOUT else None
    if unlike is not None:
        return unlike
    was, now = (_told(stage, record) for record in (before, after))
    if stage == "batches" and was != now and _of_nothing(before if was else after):
        was = now = False
    if was and now:
        steps, expected = _steps_of(stage, after), _steps_of(stage, before)
        if steps >= expected:
            return None
        reason = f"{words}: equal for {steps} steps, {expected} in the baseline (probe_steps)"
        return Check(stage, "correctness", "exact", "inconclusive", reason)
    if not was and not now:
        return Check(stage, "correctness", "exact", "skip", f"{words}: recorded on neither side")
    side = "baseline" if was else "current side"
    return Check(
        stage, "correctness", "exact", "inconclusive", f"{words}: recorded on the {side} alone"
    )
