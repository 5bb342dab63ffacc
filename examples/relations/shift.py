"""Later positions: a model with rotary positions sees only how far tokens are apart.

    canary check --relations examples/relations/shift.py canary.yaml

It breaks for a model that adds an embedding of each position, such as GPT-2.
"""

from __future__ import annotations

import torch

from canary.relations.relation import Look, Outcome, Relation, unpacked_call

RELATION = Relation(
    id="shift",
    group="neighbours",
    holds="a row has the same log-probabilities at later positions",
    likely="positions are absolute, or only one of query and key is rotated",
    source="https://arxiv.org/abs/2104.09864",
)
BY = 8
"""Positions."""


def ask(look: Look) -> Outcome:
    """Move all positions by the same number."""
    call = unpacked_call(look)
    rows, width = call.shape[0], call.shape[1]
    positions = torch.arange(width).expand(rows, width)
    before = look.scores(call, position_ids=positions)
    after = look.scores(call, position_ids=positions + BY)
    return look.compared(RELATION.id, call, before, after, look.counted(call, before))
