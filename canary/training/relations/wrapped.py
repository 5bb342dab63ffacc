"""Models around a language model that return the log-probabilities of a row's own tokens."""

from __future__ import annotations

from typing import Any

import torch

TEMPERATURES = (1.0, *(step / 20 for step in range(1, 41) if step != 20))
"""At which such a model may divide its logits."""
POSITIONS = 8
"""Tokens that are compared; the last ones."""
NEAR = 1e-3
"""How far both may be apart: half precision rounds log-probabilities."""


def are_log_probs(said: torch.Tensor, logits: torch.Tensor, ids: Any) -> bool:
    """Whether values of shape (rows, kept) are the log-probabilities of the last tokens of rows, at
    one of the usual temperatures.

    Args:
        said: what a model returned.
        logits: what its part says, shape (rows, tokens, vocabulary).
        ids: shape (rows, width).
    """
    if not torch.is_tensor(ids) or ids.dim() != 2 or said.dim() != 2 or len(ids) != len(said):
        return False
    kept, at = said.shape[1], logits.shape[1]
    if not 1 <= kept < ids.shape[1] or at < kept or len(logits) != len(said):
        return False
    # The logits at a token are of the next one.
    places = logits[:, :kept] if at == kept else logits[:, -kept - 1 : -1]
    last = min(POSITIONS, kept)
    own = ids[:1, -last:].unsqueeze(-1)
    if int(own.max()) >= logits.shape[-1] or int(own.min()) < 0:
        return False
    line, known = places[:1, -last:].detach().float(), said[:1, -last:].detach().float()
    for temperature in TEMPERATURES:
        found = (line / temperature).log_softmax(-1).gather(-1, own).squeeze(-1)
        if bool(((found - known).abs() <= NEAR * (1 + known.abs())).all()):
            return True
    return False
