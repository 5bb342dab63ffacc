"""Where a step's wall time goes: the names of the phases. Standard library alone."""

from __future__ import annotations

from collections.abc import Mapping

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
"""Where a step's wall time goes. `logprob`: log-probabilities outside the loss (policy's old ones
and the reference's, in GRPO and PPO); the reference's forward of DPO is part of `forward`.
`advantage`: of PPO, from scores and values. `evaluation`: all of it, its data and forwards too."""
WHOLE = frozenset({"evaluation"})
"""Phases whose inner ones are not told apart: they are no part of the training."""
COMPUTING = frozenset(PHASES) - {"data", "evaluation", "logging", "checkpoint"}
"""Phases in which a thread that waits, waits for no data and no file."""


STAGE_OF_PHASE = {
    "generation": "rollout",
    "reward": "reward",
    "logprob": "reference",
    "advantage": "advantage",
    "forward": "update",
    "backward": "update",
    "optimizer": "update",
}
"""Stages of a step of online RL, in their order. `reference` holds the log-probabilities outside
the loss: the reference's, and the policy's of the rollout."""


def is_online(phases: Mapping[str, float]) -> bool:
    """Whether these are the phases of a training that generates what it trains on."""
    return phases.get("generation", 0.0) > 0


def shown_phases(phases: Mapping[str, float]) -> dict[str, float]:
    """Seconds, or whatever they are given in, by the names to show: stages in their order, then
    what belongs to none."""
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
