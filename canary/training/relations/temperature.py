"""Temperatures, read from what sampling and training do.

A softmax at temperature T gives log p(a) - log p(b) = (z(a) - z(b)) / T. The gradient of a
log-probability has the same ratios at all tokens but its own.
"""

from __future__ import annotations

import torch

TOKENS = 32
"""Tokens per position: those with the largest probability."""
POSITIONS = 8
FITS = 0.999
"""Least share of the variance that a line must explain."""
LEAST_SPREAD = 1e-3
"""Of logits: less says nothing of a temperature."""
NEAR = 0.02
"""Relative: temperatures are written with two digits, and measured with a few percent."""


def of_probabilities(logits: torch.Tensor, probabilities: torch.Tensor) -> float | None:
    """Return the temperature of a softmax; shapes (rows, vocabulary). None if it is no softmax of
    these logits."""
    return _middle([_slope(z, p) for z, p in zip(logits, probabilities, strict=True)])


def of_gradient(logits: torch.Tensor, gradient: torch.Tensor) -> float | None:
    """Return the temperature of the log-probabilities that a loss took, from the gradient of its
    logits; shapes (rows, tokens, vocabulary)."""
    size = gradient.float().abs().sum(-1).flatten()
    used = size.topk(min(POSITIONS, len(size))).indices[: int((size > 0).sum())]
    pairs = []
    for place in used.tolist():
        one = gradient.flatten(0, -2)[place].float()
        label = one.abs().argmax()
        others = one.abs().clone()
        # All others have the sign that the label has not.
        others[one.sign() == one[label].sign()] = 0
        pairs.append(_slope(logits.flatten(0, -2)[place].float(), others))
    return _middle(pairs)


def nearest(measured: float, *known: float | None) -> float:
    """Return the known temperature, or the rounded one, that was measured."""
    for one in (*known, 1.0, round(measured, 2)):
        if one and abs(measured / one - 1) <= NEAR:
            return one
    return measured


def _slope(logits: torch.Tensor, weights: torch.Tensor) -> float | None:
    """Return the temperature that one position shows. `weights`: proportional to probabilities; 0
    where one is not known."""
    top = weights.double().topk(min(TOKENS, len(weights)))
    kept = top.indices[top.values > 0]
    if len(kept) < 3:
        return None
    x, y = logits.double()[kept], top.values[: len(kept)].log()
    finite = x.isfinite() & y.isfinite()
    x, y = x[finite] - x[finite].mean(), y[finite] - y[finite].mean()
    if len(x) < 3 or float(x.abs().max()) < LEAST_SPREAD:
        return None
    slope = float((x * y).sum() / (x * x).sum())
    left = float((y - slope * x).square().sum())
    if slope <= 0 or left > (1 - FITS) * float(y.square().sum()):
        return None
    return 1 / slope


def _middle(found: list[float | None]) -> float | None:
    known = sorted(one for one in found if one is not None)
    return known[len(known) // 2] if len(known) * 2 > len(found) else None
