"""What is known of a first update."""

from __future__ import annotations

from canary.relations.relation import Relation

RELATION = Relation(
    "identities",
    "start and end",
    "the first loss, ratio and KL have their known values, and advantages add up to 0",
    "policy and reference differ before training, or advantages are normalised over other rows",
    "https://arxiv.org/abs/2402.03300",
    moment=None,
    invariants=(
        "dpo_first_loss",
        "kto_first_loss",
        "starts_at_ratio_one",
        "advantages_sum_to_zero",
        "advantages_scaled",
        "rewards_add_up",
    ),
    inapplicable="this trainer has no known first values",
)
