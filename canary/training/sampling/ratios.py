"""The old log-probabilities of a policy gradient, read from the weights of its tokens.

Such a loss weighs each sampled token by its advantage times the ratio of the new to the old
probability. Within a row the advantage is one number, so the weights show the ratios.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from canary.relations.sampling import Round
from canary.training.relations.calls import scored
from canary.training.sampling.matching import Match, at_places, weights_at

LEAST_TOKENS = 8
LEAST_SPREAD = 1e-3
"""Mean square of the logarithm of the ratios within their rows: less shows nothing."""
LEFT = 0.02
"""Of that, the share that the weights may leave unexplained."""


@dataclass(frozen=True)
class _Token:
    place: str
    weight: float
    ratio: float
    """Both as logarithms, less the mean of their row."""
    values: tuple[float, float]
    """The sampler's log-probability after top-k or top-p, and the trainer's."""


def compared_cut(
    found: Sequence[Match], update: int, temperature: float, allowed: float
) -> Round | None:
    """Return the sampler's log-probabilities after top-k or top-p beside the trainer's, if the loss
    takes these as the old ones; else None."""
    tokens = [one for match in found for one in _tokens(match, temperature)]
    spread = sum(one.ratio**2 for one in tokens)
    if len(tokens) < LEAST_TOKENS or spread < LEAST_SPREAD * len(tokens):
        return None
    if sum((one.weight - one.ratio) ** 2 for one in tokens) > LEFT * spread:
        return None
    differences = [abs(cut - trained) for cut, trained in (one.values for one in tokens)]
    at = next((at for at, apart in enumerate(differences) if apart > allowed), None)
    if at is None:
        return None
    return Round(
        update,
        "after top-k or top-p, the sampler",
        len(tokens),
        sum(differences) / len(differences),
        max(differences),
        allowed,
        tokens[at].place,
        tokens[at].values,
        trainer="the trainer",
        cut=True,
    )


def _tokens(match: Match, temperature: float) -> list[_Token]:
    """Return the trained tokens of a sequence whose sampler left others out."""
    weights = weights_at(match)
    if weights is None or all(math.isnan(one) for one in match.sampled.cut):
        return []
    trainers = at_places(scored(match.call, temperature=temperature), match)
    known = [
        (number, math.log(abs(weight)), cut, trained)
        for number, (weight, cut, trained) in enumerate(
            zip(weights, match.sampled.cut, trainers, strict=False)
        )
        if weight and math.isfinite(cut) and math.isfinite(trained)
    ]
    if len(known) < 2:
        return []
    mean_weight = sum(one[1] for one in known) / len(known)
    mean_ratio = sum(one[3] - one[2] for one in known) / len(known)
    return [
        _Token(
            f"row {match.row}, sampled token {number}",
            weight - mean_weight,
            trained - cut - mean_ratio,
            (cut, trained),
        )
        for number, weight, cut, trained in known
    ]
