"""Tokens that were added to a model, and whether their embeddings train."""

from __future__ import annotations

from typing import Any

import torch

from canary.record.facts import NewTokens
from canary.training.collectors.loads import LOADS

ROWS = 64
"""Rows of the data set that are searched."""


def new_tokens(model: Any, rows: Any) -> NewTokens | None:
    """Return what is known of the tokens that `resize_token_embeddings` added; None if there are
    none, or if neither their embeddings nor the rows can be read."""
    resized = LOADS.resized(model) if isinstance(model, torch.nn.Module) else None
    if resized is None or rows is None or "input_ids" not in rows.column_names:
        return None
    inner, first, made = resized
    table = inner.get_input_embeddings()
    heads = [one for one in (inner.get_output_embeddings(),) if one is not None]
    values = [value for one in (table, *heads) for value in one.parameters()]
    weight = getattr(table, "weight", None)
    if weight is None:
        return None
    now = weight.detach()[first : first + len(made)].float().cpu()
    count = min(ROWS, len(rows))
    return {
        "first": first,
        "frozen": not any(value.requires_grad for value in values) and torch.equal(now, made),
        "rows": count,
        "rows_with": sum(max(rows[at]["input_ids"], default=0) >= first for at in range(count)),
    }
