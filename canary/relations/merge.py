"""Merged adapters."""

from __future__ import annotations

from canary.relations.relation import CannotAsk, Look, Outcome, Relation

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
    merge = getattr(look.model, "merge_adapter", None)
    if merge is None or not hasattr(look.model, "peft_config"):
        raise CannotAsk("the model has no adapters of peft")
    call = look.call
    before = look.scores(call)
    kept = [(value, value.detach().clone()) for _, value in look.named_parameters()]
    try:
        merge()
        after = look.scores(call)
    finally:
        look.model.unmerge_adapter()
        for value, was in kept:
            value.data.copy_(was)
    counts = look.counted(call, before) if call.scores_tokens and call.ids is not None else None
    return look.compared(RELATION.id, call, before, after, counts)
