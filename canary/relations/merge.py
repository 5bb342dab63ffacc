"""Merged adapters."""

from __future__ import annotations

from canary.relations.relation import CannotAsk, Look, Outcome, Relation, Tensor

RELATION = Relation(
    "merge",
    "start and end",
    "merged and unmerged adapters give the same log-probabilities",
    "scaling, bias or dropout of the adapter is lost when it is merged",
    "https://arxiv.org/abs/2106.09685",
    moment="last",
)


def ask(look: Look) -> Outcome:
    """Merge the adapters after the last update and ask again."""
    if hasattr(look.model, "merge_adapter") and hasattr(look.model, "peft_config"):
        after = _merged_by_peft(look)
    else:
        with look.merged() as count:
            if not count:
                raise CannotAsk(
                    "the model has no adapters of peft, and none with merge and unmerge"
                )
            after = look.scores(look.call)
    call, before = look.call, look.scores(look.call)
    counts = look.counted(call, before) if call.scores_tokens and call.ids is not None else None
    return look.compared(RELATION.id, call, before, after, counts)


def _merged_by_peft(look: Look) -> Tensor:
    """Return the scores with merged adapters."""
    kept = [(value, value.detach().clone()) for _, value in look.named_parameters()]
    try:
        look.model.merge_adapter()
        return look.scores(look.call)
    finally:
        look.model.unmerge_adapter()
        for value, was in kept:
            value.data.copy_(was)
