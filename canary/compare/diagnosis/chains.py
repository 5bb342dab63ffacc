"""Chains of cause and effect: an effect of a mechanism is evidence for it, not a rival."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from canary.compare.diagnosis.evidence import Finding

COMPUTE = ("forward", "backward", "optimizer", "generation", "logprob")
"""Phases whose time is spent in operators, on the device or on a CPU."""
PYTHON = ("data", "reward", "logging", "checkpoint", "advantage", "other")
"""Phases that also run the user's code."""

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
    # A collator computes too, if no phase of the model grew. A wait for a batch or a file needs no
    # core. So the delay for a core falls on the computing phases, where it counts as "waiting".
    "data": ("ranks_wait", "operators_of_data", "waiting"),
    "checkpoint": ("ranks_wait", "waiting"),
    "logging": ("ranks_wait", "waiting"),
    "reward": ("ranks_wait",),
}
"""Sign of a cause: signs of its effects. Counts are named by their check, times by their phase,
and shares of the host's time by their field in the record."""


def chained(found: Iterable[Finding]) -> list[Finding]:
    """Return the findings at the start of each chain, with the evidence of their effects.

    If several findings explain an effect, the strongest gets its evidence.
    """
    remaining = list(found)
    while (pair := _end_of_chain(remaining)) is not None:
        cause, effect = pair
        remaining = [
            replace(one, evidence=(*one.evidence, *effect.evidence)) if one is cause else one
            for one in remaining
            if one is not effect
        ]
    return remaining


def _end_of_chain(found: list[Finding]) -> tuple[Finding, Finding] | None:
    """Return a (cause, effect) whose effect causes nothing, to merge chains from their ends."""
    pairs = [
        (cause, effect)
        for effect in found
        for cause in sorted(found, key=lambda one: -one.strength)
        if cause.category is not effect.category and follows(effect, cause)
    ]
    causes = [cause for cause, _ in pairs]
    return next((pair for pair in pairs if not any(pair[1] is one for one in causes)), None)


def follows(effect: Finding, cause: Finding) -> bool:
    """Return whether the sign of `effect` follows from that of `cause`."""
    return bool(effect.sign) and effect.sign in FOLLOWS.get(cause.sign, ())
