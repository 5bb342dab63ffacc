"""What is frozen, and what is trained."""

from __future__ import annotations

from canary.relations.relation import CannotAsk, Look, Outcome, Relation, broken, holds

RELATION = Relation(
    "frozen",
    "what is trained",
    "frozen parameters do not change, all trainable ones have a gradient and an optimizer",
    "the optimizer is older than a change of what is trained, or something cuts off the gradient",
    "https://arxiv.org/abs/2506.14813",
    moment="last",
    invariants=("frozen_unchanged",),
)
CUT = 0.5
"""Share of the trainable tensors. Fewer may be unused on purpose, such as experts or a pooler."""


def ask(look: Look) -> Outcome:
    """Compare the parameters that had a gradient in some update with those of the optimizers."""
    held = {
        id(value)
        for optimizer in look.optimizers
        for group in optimizer.param_groups
        for value in group["params"]
    }
    named = [(name, value) for name, value in look.named_parameters() if value.requires_grad]
    if not any(id(value) in held for _, value in named):
        raise CannotAsk("the optimizer holds other tensors than the model, as master copies are")
    lost = [name for name, value in named if id(value) not in held and name in look.first_gradients]
    if lost:
        first = min(look.first_gradients[name] for name in lost)
        return broken(
            RELATION,
            f"from update {first} on, {len(lost)} trainable tensors have a gradient, "
            "but no optimizer has them",
            lost[0],
        )
    # A second optimizer may train the rest of the model in updates of its own.
    groups = look.optimizers[0].param_groups if look.optimizers else ()
    first_ones = {id(value) for group in groups for value in group["params"]}
    mine = [name for name, value in named if id(value) in first_ones]
    cut = [name for name in mine if name not in look.first_gradients]
    if cut and len(cut) >= CUT * len(mine):
        words = f"{len(cut)} of {len(mine)} trainable tensors have no gradient in any update"
        return broken(RELATION, words, cut[0], (len(cut), len(mine)))
    count = sum(name in look.first_gradients for name, _ in named)
    return holds(RELATION, f"the optimizer has all {count} trainable tensors with a gradient")
