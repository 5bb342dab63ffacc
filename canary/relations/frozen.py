"""What is frozen, and what is trained."""

from __future__ import annotations

from canary.relations.relation import Look, Outcome, Relation, broken, holds

RELATION = Relation(
    "frozen",
    "what is trained",
    "frozen parameters do not change, and the optimizer has all trainable ones",
    "the optimizer was built before parameters were frozen, unfrozen or added",
    "https://arxiv.org/abs/2506.14813",
    moment="last",
    invariants=("frozen_unchanged",),
)


def ask(look: Look) -> Outcome:
    """Compare the parameters that had a gradient in some update with those of the optimizers."""
    held = {
        id(value)
        for optimizer in look.optimizers
        for group in optimizer.param_groups
        for value in group["params"]
    }
    named = [(name, value) for name, value in look.named_parameters() if value.requires_grad]
    lost = [name for name, value in named if id(value) not in held and name in look.first_gradients]
    if lost and len(lost) < len(named):
        first = min(look.first_gradients[name] for name in lost)
        return broken(
            RELATION,
            f"from update {first} on, {len(lost)} trainable tensors have a gradient, "
            "but no optimizer has them",
            lost[0],
        )
    count = sum(name in look.first_gradients for name, _ in named)
    return holds(RELATION, f"the optimizer has all {count} trainable tensors with a gradient")
