"""The same forward and backward twice."""

from __future__ import annotations

from canary.relations.relation import CannotAsk, Look, Outcome, Relation, broken, holds

RELATION = Relation(
    "replay",
    "machine",
    "the same forward and backward pass gives the same gradients twice",
    "a kernel is not deterministic, or a module keeps a state",
    "https://arxiv.org/abs/2506.09280",
)


def ask(look: Look) -> Outcome:
    """Run forward and backward of the first call twice and compare bit for bit."""
    one, other = look.gradients(look.call), look.gradients(look.call)
    if one is None or other is None:
        raise CannotAsk("the gradient of the logits is too large to keep")
    apart = [name for name, value in one.items() if not value.equal(other[name])]
    if not apart:
        return holds(RELATION, f"{len(one)} gradients are equal bit for bit")
    return broken(
        RELATION, f"{len(apart)} of {len(one)} gradients differ, the first is {apart[0]}", apart[0]
    )
