"""Log-probabilities that a trainer keeps of a rollout: the engine's, and the policy's."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from canary.relations.sampling import Round
from canary.training.relations.calls import KeptCall
from canary.training.relations.rounding import rounding_of
from canary.training.sampling.samples import Sampled

OF_ENGINE = ("sampling_per_token_logps",)
"""In trl, of vLLM or of another rollout function."""
OF_POLICY = ("old_per_token_logps", "logprobs")
"""In trl, and in the canary's PPO."""


def of_engine(tensors: Mapping[str, Any]) -> list[Sampled]:
    """Return the completions of a rollout with the engine's log-probabilities."""
    return _rows(tensors, OF_ENGINE)


def of_policy(tensors: Mapping[str, Any]) -> list[Sampled]:
    """Return the completions of a rollout with the old log-probabilities."""
    return _rows(tensors, OF_POLICY)


def _rows(tensors: Mapping[str, Any], names: Sequence[str]) -> list[Sampled]:
    known = next((tensors[name] for name in names if torch.is_tensor(tensors.get(name))), None)
    if known is None or known.shape != tensors["completion_ids"].shape:
        return []
    # Tokens of tools were not sampled.
    sampled = tensors["completion_mask"].bool()
    if "tool_mask" in tensors:
        sampled = sampled & tensors["tool_mask"].bool()
    names_of_row = ("prompt_ids", "prompt_mask", "completion_ids", "completion_mask")
    lines = zip(
        *(tensors[name].tolist() for name in names_of_row),
        sampled.tolist(),
        known.tolist(),
        strict=True,
    )
    return [
        Sampled(
            tuple(token for token, keep in zip(prompt, real, strict=True) if keep),
            [token for token, keep in zip(tokens, kept, strict=True) if keep],
            [
                value if drawn else math.nan
                for value, drawn, keep in zip(values, own, kept, strict=True)
                if keep
            ],
        )
        for prompt, real, tokens, kept, own, values in lines
    ]


Pair = tuple[Sampled, Sampled]
"""One sequence as it was sampled, and with the old log-probabilities."""


def paired(samples: Sequence[Sampled], kept: Sequence[Sampled]) -> list[Pair]:
    """Return the sequences that are in both."""
    found = []
    for one in kept:
        for sampled in samples:
            count = min(len(one.tokens), len(sampled.tokens))
            same = one.tokens[:count] == sampled.tokens[:count]
            if count and same and one.prompt == sampled.prompt:
                found.append((sampled, one))
                break
    return found


def compared_kept(pairs: Sequence[Pair], call: KeptCall, update: int, told: float | None) -> Round:
    """Compare the sampler's with the old log-probabilities. `call` measures what rounding moves;
    `told`: the trainer's temperature."""
    allowed = rounding_of(call, told or 1.0)
    differences, first = [], None
    for row, (sampled, old) in enumerate(pairs):
        both = zip(sampled.log_probs, old.log_probs, strict=False)
        for number, (mine, others) in enumerate(both):
            if math.isnan(mine) or math.isnan(others):
                continue
            differences.append(abs(mine - others))
            if differences[-1] > allowed and first is None:
                first = f"row {row}, sampled token {number}", (mine, others)
    known = next((one.temperature for one, _ in pairs if one.temperature), None)
    return Round(
        update,
        "the sampler",
        len(differences),
        sum(differences) / max(1, len(differences)),
        max(differences, default=0.0),
        allowed,
        "" if first is None else first[0],
        None if first is None else first[1],
        None if known is None or told is None else (known, told),
        "",
        any(one.training for one, _ in pairs),
        trainer="the old log-probabilities of the loss",
    )
