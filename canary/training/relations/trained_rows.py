"""The trained rows of a call: what their weights are, and what a reference says of their tokens."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

import torch

from canary.relations.trained import TrainedRow
from canary.training.relations.adapters import State
from canary.training.relations.calls import KeptCall
from canary.training.relations.scored import Scored, key_of, real_places, right_aligned

CLOSE = 1e-5
"""Two calls of the same weights say the same, relative to a log-probability of at least 1."""
NEARLY_CERTAIN = math.log(0.99)
"""The weight of a likelier token is read from a difference of almost equal numbers."""
LEAST_TOKENS = 4
"""Of a row: with fewer, a correlation says nothing."""
LEAST_SPREAD = 1e-6
"""Of log-probabilities or relative weights; less is rounding."""
SURE = 0.95
"""Share of trained tokens whose label must be the next token."""

Said = tuple[Scored, str, torch.Tensor]
"""A call without gradients, who it is (`now`, `before` or `reference`), and what it said of a
row."""


def trained_rows(
    call: KeptCall, groups: dict[tuple[int, int], int], said: Callable[[bytes], Iterable[Said]]
) -> list[TrainedRow]:
    """Return the trained rows of a call; empty if the gradient does not show their weights.

    Args:
        call: of the policy.
        groups: by the id of a call and the place of a row.
        said: returns who scored a row without gradients.
    """
    ids = call.ids
    if ids is None or call.weights is None or call.labels is None or call.log_probs is None:
        return []
    ids, width = ids.cpu(), ids.shape[1]
    weights = right_aligned(_of_tokens(call, call.weights), width)
    labels = right_aligned(_of_tokens(call, call.labels), width)
    trained = weights.isfinite() & (weights != 0)
    if float((labels[trained] == ids[:, 1:][trained]).float().mean()) < SURE:
        return []
    fits = call.mask is not None and call.mask.shape == ids.shape
    mask = call.mask.bool().cpu() if fits and call.mask is not None else None
    return [
        _row(
            weights[row, places[1:] - 1],
            call.log_probs[row, places[1:] - 1],
            groups.get((id(call), row)),
            [*said(key_of(ids[row], places))],
        )
        for row, places in enumerate(real_places(ids, mask))
    ]


def _of_tokens(call: KeptCall, values: torch.Tensor) -> torch.Tensor:
    """Return values of positions as those of tokens: logits are of the next token."""
    return (values[:, :-1] if call.says == "logits" else values).float().cpu()


def _row(
    weights: torch.Tensor,
    own: torch.Tensor,
    group: int | None,
    said: Sequence[Said],
) -> TrainedRow:
    trained = weights != 0
    sure = trained & (own < NEARLY_CERTAIN)
    if not bool(sure.any()):
        sure = trained
    values = weights[sure]
    mean = float(values.mean()) if len(values) else 0.0
    largest = float((values - mean).abs().max()) if len(values) else 0.0
    now = [one for _, kind, one in said if kind == "now"]
    return TrainedRow(
        int(trained.sum()),
        mean,
        largest / abs(mean) if mean else (math.inf if largest else 0.0),
        group,
        any(_is_close(one[trained], own[trained]) for one in now),
        len(said) > len(now) or not all(_is_close(one[trained], own[trained]) for one in now),
        _towards(
            values,
            [(call, one[sure] - own[sure]) for call, kind, one in said if kind == "reference"],
        ),
    )


def _is_close(one: torch.Tensor, other: torch.Tensor) -> bool:
    return bool(((one - other).abs() <= CLOSE * other.abs().clamp_min(1)).all())


def _towards(
    weights: torch.Tensor, likelier: Sequence[tuple[Scored, torch.Tensor]]
) -> float | None:
    """Return the correlation of weights with the only reference that differs from the policy."""
    by_source: dict[tuple[int, State], torch.Tensor] = {}
    if len(weights) < LEAST_TOKENS:
        return None
    for call, values in likelier:
        if bool(values.isfinite().all()) and float(values.std()) > LEAST_SPREAD:
            by_source.setdefault((call.source, call.adapters), values)
    if len(by_source) != 1:
        return None
    (values,) = by_source.values()
    # The gradient of exp(d) - d - 1, and that of d * d / 2.
    found = [_correlation(weights, one) for one in (values.expm1(), values)]
    return max((one for one in found if one is not None), key=abs, default=None)


def _correlation(one: torch.Tensor, other: torch.Tensor) -> float | None:
    x, y = (values.double() - values.double().mean() for values in (one, other))
    size = float(x.norm() * y.norm())
    if float(x.norm()) <= LEAST_SPREAD * float(one.double().norm()) or not size:
        return None
    return float((x * y).sum()) / size
