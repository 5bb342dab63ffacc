"""A fused optimizer and a plain one."""

from __future__ import annotations

from canary.relations.relation import Outcome, Relation
from canary.relations.trajectory import Recorded, equal_steps

RELATION = Relation(
    "fused_optimizer",
    "same work",
    "fused and plain AdamW learn the same, except for rounding",
    "the optimizer gets other settings, or parameters that its kernel does not handle",
    "https://arxiv.org/abs/2506.09280",
    moment=None,
    variations=(
        {"name": "plain AdamW", "arguments": {"optim": "adamw_torch"}},
        {"name": "fused AdamW", "arguments": {"optim": "adamw_torch_fused"}},
    ),
)
WITHIN = 1e-4
"""Relative, over a few steps. Rounding of an update grows with each step."""


def judge(base: Recorded, plain: Recorded, fused: Recorded) -> Outcome:
    """Compare the losses of both."""
    return equal_steps(RELATION, plain, fused, within=WITHIN)
