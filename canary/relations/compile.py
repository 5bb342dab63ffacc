"""A compiled model."""

from __future__ import annotations

from canary.relations.relation import CannotAsk, Look, Outcome, Relation, token_call

RELATION = Relation(
    "compile",
    "same work",
    "the compiled model gives the same log-probabilities as the model itself",
    "the forward pass depends on what the compiler does not see, or a graph is wrong",
    "https://arxiv.org/abs/2506.09280",
    slow=True,
)


def ask(look: Look) -> Outcome:
    """Trace the model with the backend aot_eager, which needs no C++ compiler, and ask it."""
    call = token_call(look)
    before = look.scores(call)
    after = look.compiled(call)
    if after is None:
        raise CannotAsk("torch.compile makes no graph of this model")
    return look.compared(RELATION.id, call, before, after, look.counted(call, before))
