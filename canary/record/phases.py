"""The phases of a step: their names, and the seconds of a typical step. Uses only the standard
library."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from canary.record.types import RunRecord

PHASES = (
    "data",
    "forward",
    "backward",
    "optimizer",
    "generation",
    "reward",
    "logprob",
    "advantage",
    "evaluation",
    "logging",
    "checkpoint",
    "other",
)
"""They share a step's wall time. `logprob`: log-probabilities outside the loss, in GRPO and PPO
those of the old policy and of the reference model; DPO's reference forward is in `forward`.
`advantage`: PPO's, from scores and values. `evaluation`: all of it, with its data and forwards."""
WHOLE = frozenset({"evaluation"})
"""Phases whose inner phases are not timed, because they are not training."""
COMPUTING = frozenset(PHASES) - {"data", "evaluation", "logging", "checkpoint"}
"""Phases in which a waiting thread waits neither for data nor for a file."""

STAGE_OF_PHASE = {
    "generation": "rollout",
    "reward": "reward",
    "logprob": "reference",
    "advantage": "advantage",
    "forward": "update",
    "backward": "update",
    "optimizer": "update",
}
"""Stages of an online RL step, in order. `reference` holds the log-probabilities outside the loss:
the reference model's, and the policy's for the rollout."""


def is_online(phases: Mapping[str, float]) -> bool:
    """Return whether the training generates its data."""
    return phases.get("generation", 0.0) > 0


def shown_phases(phases: Mapping[str, float]) -> dict[str, float]:
    """Return the values, in their unit, by the names to show: for online RL the stages in order,
    then the other phases."""
    if not is_online(phases):
        return {name: value for name, value in phases.items() if value > 0}
    found: dict[str, float] = {}
    for name, value in phases.items():
        if value > 0:
            stage = STAGE_OF_PHASE.get(name, name)
            found[stage] = found.get(stage, 0.0) + value
    order = list(dict.fromkeys(STAGE_OF_PHASE.values()))
    known = {stage: found.pop(stage) for stage in order if stage in found}
    return known | found


Seconds = Mapping[str, float]


def phases_of_launches(records: Sequence[RunRecord]) -> list[dict[str, float]]:
    """Return seconds by phase of each completed launch, steps cut to the 95th percentile;
    of whole records of earlier versions."""
    launches = (
        launch.phases_steady
        for record in records
        for launch in record.launches
        if launch.status == "completed"
    )
    return all_or_none(launches) or all_or_none(r.phases for r in records if r.phases)


def all_or_none(found: Iterable[Seconds]) -> list[dict[str, float]]:
    """Return the phases of all launches; an empty list if one did not measure them."""
    launches = list(found)
    return [dict(phases) for phases in launches] if all(launches) else []


def typical_phases(launches: Sequence[Seconds]) -> dict[str, float]:
    """Return the median launch's seconds for each phase; a missing phase took none."""
    return {
        name: statistics.median(launch.get(name, 0.0) for launch in launches) for name in PHASES
    }
