"""A fused optimizer and a plain one."""

from __future__ import annotations

from canary.relations.relation import Outcome, Relation
from canary.relations.trajectory import Recorded, near_steps

RELATION = Relation(
    "fused_optimizer",
    "same work",
    "fused and plain AdamW learn the same, except for rounding",
    "the optimizer gets other settings, or parameters that its kernel does not handle",
    "https://arxiv.org/abs/2506.09280",
    moment=None,
    variations=(
        {"name": "plain AdamW", "arguments": {"optim": "adamw_torch"}},
        {
            "name": "plain AdamW, off by one rounding",
            "arguments": {"optim": "adamw_torch"},
            "perturbed": 1,
        },
        {"name": "fused AdamW", "arguments": {"optim": "adamw_torch_fused"}},
    ),
    no_loop="only a transformers Trainer can be told which optimizer to use",
)


def judge(base: Recorded, plain: Recorded, moved: Recorded, fused: Recorded) -> Outcome:
    """Compare the losses of both within the tolerance."""
    return near_steps(RELATION, plain, moved, fused)
