"""Adapters before the first update."""

from __future__ import annotations

from canary.relations.relation import CannotAsk, Look, Outcome, Relation

RELATION = Relation(
    "adapter_start",
    "start and end",
    "adapters change nothing before the first update",
    "an adapter does not start at zero",
    "https://arxiv.org/abs/2106.09685",
)
ADJUSTED = ("pissa", "olora", "eva", "loftq", "corda", "orthogonal")
"""Initialisations of LoRA that change the base model too."""


def ask(look: Look) -> Outcome:
    """Switch the adapters off."""
    off = getattr(look.model, "disable_adapter", None)
    configs = getattr(look.model, "peft_config", None)
    if off is None or not isinstance(configs, dict):
        raise CannotAsk("the model has no adapters of peft")
    for one in configs.values():
        kind = str(getattr(one, "init_lora_weights", True)).lower()
        if any(kind.startswith(name) for name in ADJUSTED):
            raise CannotAsk(f"init_lora_weights: {kind} changes the base model too")
        if getattr(one, "is_prompt_learning", False):
            raise CannotAsk("prompt learning changes the log-probabilities on purpose")
    call = look.call
    before = look.scores(call)
    with off():
        after = look.scores(call)
    counts = look.counted(call, before) if call.scores_tokens and call.ids is not None else None
    return look.compared(RELATION.id, call, before, after, counts)
