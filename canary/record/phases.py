"""Where a step's wall time goes: the names of the phases. Standard library alone."""

from __future__ import annotations

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
