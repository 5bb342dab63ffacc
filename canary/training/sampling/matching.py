"""The sampler's log-probabilities beside the trainer's, for trained rows that were sampled."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from canary.relations.sampling import Round
from canary.training.relations.calls import KeptCall, scored
from canary.training.relations.rounding import rounding_of
from canary.training.relations.temperature import nearest
from canary.training.sampling.samples import Sampled

LEAST_TOKENS = 3
"""Tokens of a completion that say whose it is, if the prompt does not."""


@dataclass(frozen=True)
class Match:
    """A sampled sequence in a row of a training call."""

    sampled: Sampled
    call: KeptCall
    row: int
    places: list[int]
    """Of the sampled tokens, in the row."""
    prompt: tuple[int, ...]
    """The row's tokens before them."""


def matches(samples: Sequence[Sampled], calls: Sequence[KeptCall]) -> list[Match]:
    """Return where the calls train on sampled sequences."""
    return [found for call in calls for found in _of_call(samples, call)]


def _of_call(samples: Sequence[Sampled], call: KeptCall) -> Iterator[Match]:
    ids, mask = call.ids, call.mask
    if ids is None or not call.scores_tokens:
        return
    fits = mask is not None and mask.shape == ids.shape
    for row, line in enumerate(ids.tolist()):
        real = list(range(len(line)))
        if fits and mask is not None:
            real = mask[row].nonzero().flatten().tolist()
        tokens = [line[place] for place in real]
        found = _whole(samples, tokens) or _completion(samples, tokens)
        if found is not None:
            sampled, first, count = found
            places = real[first : first + count]
            yield Match(sampled, call, row, places, tuple(tokens[:first]))


Place = tuple[Sampled, int, int]
"""A sequence, the place of its first sampled token, and how many follow."""


def _whole(samples: Sequence[Sampled], tokens: Sequence[int]) -> Place | None:
    """Find the sequence whose prompt and tokens these are, up to the shorter end."""
    for one in samples:
        first = len(one.prompt)
        rest = list(tokens[first:])
        count = min(len(rest), len(one.tokens))
        if count and tuple(tokens[:first]) == one.prompt and rest[:count] == one.tokens[:count]:
            return one, first, count
    return None


def _completion(samples: Sequence[Sampled], tokens: Sequence[int]) -> Place | None:
    """Find the sequence whose tokens end the row, after another prompt."""
    found = []
    for one in samples:
        # The trainer may leave out what follows the end of the text.
        for count in range(len(one.tokens), LEAST_TOKENS - 1, -1):
            if list(tokens[-count:]) == one.tokens[:count]:
                found.append((one, len(tokens) - count, count))
                break
    # Of equal completions, that whose prompt ends most like the row's.
    return max(found, key=lambda it: _common(it[0].prompt, tokens[: it[1]]), default=None)


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    """Return how many tokens at the end are equal."""
    pairs = zip(reversed(one), reversed(other), strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def compared(
    found: Sequence[Match],
    update: int,
    source: str,
    told: float | None = None,
) -> Round:
    """Compare log-probabilities of matched sequences. `told`: the temperature that the trainer
    says."""
    calls = {id(one.call): one.call for one in found}
    measured = [one.temperature for one in calls.values() if one.temperature is not None]
    known = next((one.sampled.temperature for one in found if one.sampled.temperature), None)
    trained = nearest(sorted(measured)[len(measured) // 2], known) if measured else told
    scores = {key: scored(call, temperature=trained or known or 1.0) for key, call in calls.items()}
    differences, first = [], None
    allowed = rounding_of(found[0].call, trained or known or 1.0)
    for match in found:
        trainers = at_places(scores[id(match.call)], match)
        for number, (mine, others) in enumerate(
            zip(match.sampled.log_probs, trainers, strict=False)
        ):
            if math.isnan(mine) or math.isnan(others):
                continue
            apart = abs(mine - others)
            differences.append(apart)
            if not apart <= allowed and first is None:
                first = match, number, mine, others
    return Round(
        update,
        source,
        len(differences),
        sum(differences) / max(1, len(differences)),
        max(differences, default=0.0),
        allowed,
        "" if first is None else f"row {first[0].row}, sampled token {first[1]}",
        None if first is None else (first[2], first[3]),
        _temperatures(found, known, trained),
        next((words for one in found if (words := _prompts(one))), ""),
        any(one.sampled.training for one in found),
        any(one.sampled.penalised for one in found),
    )


def _temperatures(
    found: Sequence[Match], known: float | None, trained: float | None
) -> tuple[float, float] | None:
    if known is None or trained is None or any(one.sampled.at_one for one in found):
        return None
    return known, trained


def at_places(scores: torch.Tensor, match: Match) -> list[float]:
    """Return the trainer's log-probability of each sampled token; NaN where it is not known."""
    ids = match.call.ids
    assert ids is not None
    left_out = ids.shape[1] - scores.shape[1]
    places = [place - left_out for place in match.places]
    line = scores[match.row].tolist()
    return [line[place] if place >= 0 else math.nan for place in places]


def weights_at(match: Match) -> list[float] | None:
    """Return how much the loss raises each sampled token; 0 where that is not known."""
    call, ids = match.call, match.call.ids
    if call.weights is None or ids is None or call.weights.dim() != 2:
        return None
    # The logits at one position are of the next token. Log-probabilities already are of their own.
    shift = ids.shape[1] - call.weights.shape[1] + (0 if call.says == "log_probs" else 1)
    line = call.weights[match.row].tolist()
    return [line[at - shift] if 0 <= at - shift < len(line) else 0.0 for at in match.places]


def _prompts(match: Match) -> str:
    sampled, trained = match.sampled.prompt, match.prompt
    if sampled == trained or not sampled:
        return ""
    pairs = enumerate(zip(sampled, trained, strict=False))
    place = next((at for at, (a, b) in pairs if a != b), min(len(sampled), len(trained)))
    return (
        f"the sampler's prompt has {len(sampled)} tokens and the trainer's {len(trained)}, and "
        f"they differ from token {place} on"
    )
