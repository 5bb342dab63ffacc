"""Eager attention and sdpa."""

from __future__ import annotations

from canary.relations.relation import CannotAsk, Look, Outcome, Relation, token_call

RELATION = Relation(
    "attention",
    "same work",
    "eager and sdpa attention give the same log-probabilities",
    "one of them gets no attention mask, or a mask of the wrong form",
    "https://arxiv.org/abs/2506.09280",
)


def ask(look: Look) -> Outcome:
    """Switch the model's attention and ask it again."""
    call = token_call(look)
    model = getattr(look.model, "base_model", look.model)
    model = look.model if not hasattr(model, "set_attn_implementation") else model
    kind = getattr(getattr(model, "config", None), "_attn_implementation", None)
    if not hasattr(model, "set_attn_implementation") or kind not in ("eager", "sdpa"):
        raise CannotAsk("the model's attention cannot be switched between eager and sdpa")
    before = look.scores(call)
    try:
        model.set_attn_implementation("sdpa" if kind == "eager" else "eager")
        after = look.scores(call)
    finally:
        model.set_attn_implementation(kind)
    return look.compared(RELATION.id, call, before, after, look.counted(call, before))
