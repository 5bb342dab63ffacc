"""Chains of cause and effect: what a mechanism brings along is its evidence, and no rival of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from canary.compare.diagnosis.evidence import Finding

COMPUTE = ("forward", "backward", "optimizer", "generation", "logprob")
"""Phases whose time is the device's, or that of operators on a CPU."""
PYTHON = ("data", "reward", "logging", "checkpoint", "advantage", "other")
"""Phases in which code of the user's own runs as well."""

FOLLOWS: Mapping[str, tuple[str, ...]] = {
    "tokenizer_calls": PYTHON,
    "dataset_maps": ("files_written",),
    "files_written": (*PYTHON, "waiting"),
    "collectives": ("operators", "ranks_wait", *COMPUTE, "other", "waiting"),
    "ranks_wait": (*COMPUTE, "other", "waiting"),
    "tokens_fed": ("operators", "generation", "logprob", "max_memory"),
    "forwards": ("tokens_fed", *COMPUTE, "reward", "other", "max_memory", "ranks_wait"),
    "operators": (*COMPUTE, "reward", "advantage", "logging", "other", "max_memory", "ranks_wait"),
    "input_tokens": (*COMPUTE, "data", "operators", "max_memory", "ranks_wait"),
    "trained_parameters": ("backward", "optimizer", "live_memory", "max_memory"),
    "dtypes": (*COMPUTE, "operators", "live_memory", "max_memory"),
    "live_tensors": ("live_memory", "max_memory", "other"),
    "live_memory": ("max_memory",),
    "gil_contention": (*COMPUTE, *PYTHON, "ranks_wait"),
    # A collator computes too, where no phase of the model grew. While a batch or a file is waited
    # for, nobody takes the core: the computing phases have more than their share of that.
    "data": ("ranks_wait", "operators_of_data", "waiting"),
    "checkpoint": ("ranks_wait", "waiting"),
    "logging": ("ranks_wait", "waiting"),
    "reward": ("ranks_wait",),
}
"""What follows from what, by the sign that a finding rests on: a count by the name of its check, a
time by its phase, a share of the host's time by its name in the record."""


def chained(found: Iterable[Finding]) -> list[Finding]:
    """The findings that follow from no other mechanism, with what follows from them as evidence.

    Of several that explain one finding, the strongest gets its evidence. What follows from a
    finding that follows from another belongs to the first of the chain.
    """
    left = list(found)
    while (pair := _first_pair(left)) is not None:
        cause, effect = pair
        left = [
            replace(one, evidence=(*one.evidence, *effect.evidence)) if one is cause else one
            for one in left
            if one is not effect
        ]
    return left


def _first_pair(found: list[Finding]) -> tuple[Finding, Finding] | None:
    """(cause, effect): an effect that nothing here follows from goes first, so that no link of a
    chain is lost before those behind it."""
    pairs = [
        (cause, effect)
        for effect in found
        for cause in sorted(found, key=lambda one: -one.strength)
        if cause.category is not effect.category and follows(effect, cause)
    ]
    causes = [cause for cause, _ in pairs]
    return next((pair for pair in pairs if not any(pair[1] is one for one in causes)), None)


def follows(effect: Finding, cause: Finding) -> bool:
    """Whether what `effect` rests on is a thing that `cause` brings along."""
    return bool(effect.sign) and effect.sign in FOLLOWS.get(cause.sign, ())
