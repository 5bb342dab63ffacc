"""The reference model."""

from __future__ import annotations

from canary.relations.relation import CannotAsk, Look, Outcome, Relation, broken

RELATION = Relation(
    "reference_start",
    "start and end",
    "the reference model equals the policy at the start, and shares nothing with it",
    "the reference is another model, or the policy itself: then it moves with the policy",
    "https://arxiv.org/abs/2305.18290",
)


def ask(look: Look) -> Outcome:
    """Ask the reference about the policy's first micro-batch."""
    if not look.references:
        raise CannotAsk("no reference model was seen (same shapes, called without gradients)")
    reference, _ = look.references[0]
    own = {value.data_ptr() for _, value in look.named_parameters() if value.requires_grad}
    shared = [name for name, value in reference.named_parameters() if value.data_ptr() in own]
    if shared:
        return broken(
            RELATION, f"reference and policy share {len(shared)} trainable tensors", shared[0]
        )
    call = look.call
    before = look.scores(call)
    module = call.module
    try:
        call.module = reference
        after = look.scores(call)
    finally:
        call.module = module
    counts = look.counted(call, before) if call.scores_tokens and call.ids is not None else None
    return look.compared(RELATION.id, call, before, after, counts)
