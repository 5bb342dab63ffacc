"""Activation checkpointing on and off."""

from __future__ import annotations

from canary.relations.relation import CannotAsk, Look, Outcome, Relation

RELATION = Relation(
    "checkpointing",
    "same work",
    "activation checkpointing does not change the gradients",
    "a module draws random numbers or changes its state in the forward pass",
    "https://arxiv.org/abs/2506.09280",
)


def ask(look: Look) -> Outcome:
    """Run forward and backward again with checkpointing the other way."""
    # Checkpointing works in training mode alone; rounding is measured in the same mode.
    look.model.train()
    try:
        before = look.gradients(look.call)
        with look.other_checkpointing():
            after = look.gradients(look.call)
        if before is None or after is None:
            raise CannotAsk("the gradient of the logits is too large to keep")
        return look.compared_gradients(RELATION.id, before, after)
    finally:
        look.model.eval()
