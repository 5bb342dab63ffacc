"""The relations that `canary check` judges, one per file."""

from __future__ import annotations

from types import ModuleType

from canary.relations import (
    accumulation,
    adapter_start,
    assistant_mask,
    attention,
    causality,
    chat_template,
    checkpointing,
    compile,
    eos_labels,
    evaluation,
    frozen,
    fused_optimizer,
    identities,
    merge,
    neighbour,
    next_token,
    order,
    packing,
    padding,
    padding_side,
    prompt_labels,
    ranks,
    reference_start,
    replay,
    resume,
    reward_function,
    sampler_logprobs,
    sampler_weights,
    schedule,
    swap,
    weight_decay,
    workers,
)
from canary.relations.relation import Relation

_MODULES: tuple[ModuleType, ...] = (
    accumulation,
    checkpointing,
    attention,
    compile,
    fused_optimizer,
    workers,
    ranks,
    padding,
    padding_side,
    order,
    neighbour,
    packing,
    prompt_labels,
    assistant_mask,
    eos_labels,
    causality,
    next_token,
    frozen,
    chat_template,
    swap,
    adapter_start,
    merge,
    reference_start,
    identities,
    resume,
    evaluation,
    schedule,
    weight_decay,
    sampler_logprobs,
    sampler_weights,
    reward_function,
    replay,
)

MODULES: dict[str, ModuleType] = {one.RELATION.id: one for one in _MODULES}
"""The file of each relation, by id, in the order of the report."""
RELATIONS: dict[str, Relation] = {name: one.RELATION for name, one in MODULES.items()}
