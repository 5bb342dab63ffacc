"""Which parameters decay."""

from __future__ import annotations

from canary.relations.relation import CannotAsk, Look, Outcome, Relation, broken, holds

RELATION = Relation(
    "weight_decay",
    "start and end",
    "if a group has no weight decay, it holds all biases and norms",
    "the names that should leave out biases and norms do not match them",
    "https://github.com/huggingface/transformers/pull/35927",
)


def ask(look: Look) -> Outcome:
    """Look for biases and norms among the parameters that decay, if some group does not decay."""
    names = {id(value): name for name, value in look.named_parameters()}
    groups = [group for one in look.optimizers for group in one.param_groups if group["params"]]
    decays = [float(group.get("weight_decay") or 0.0) for group in groups]
    if not any(decays):
        raise CannotAsk("no parameter has weight decay")
    if all(decays):
        raise CannotAsk("all parameters have weight decay")
    lost = [
        names.get(id(value), "a tensor")
        for group, decay in zip(groups, decays, strict=True)
        if decay
        for value in group["params"]
        if value.dim() == 1
    ]
    if not lost:
        return holds(RELATION, "no bias or norm has weight decay")
    return broken(RELATION, f"{len(lost)} biases and norms have weight decay", lost[0])
