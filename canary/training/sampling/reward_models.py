"""Asks a reward model again about the rows of its first call."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from canary.protocol.failure import one_line
from canary.relations.sampling import Reward
from canary.training.relations.calls import KeptCall, scored
from canary.training.relations.rounding import rounding_of
from canary.training.relations.rows import picked, widened

COLUMNS = 3
"""Of padding that are added."""


def asked_model(call: KeptCall) -> Reward:
    """Ask again with other rows, in another order, and with more padding. The model is in
    evaluation mode."""
    rows, name = call.shape[0], type(call.module).__name__
    try:
        before = scored(call)
        allowed = rounding_of(call, weights=False)
        for how, cause, places, changed in _ways(call):
            after = scored(call, **changed)
            apart = (after - before[places]).abs().nan_to_num(nan=float("inf"))
            if float(apart.max()) > allowed:
                first, column = (apart > allowed).nonzero()[0].tolist()
                place = places[first]
                values = float(before[place, column]), float(after[first, column])
                return Reward(name, rows, how, f"row {place}", values, cause)
    except Exception as error:  # noqa: BLE001 - a user's model may refuse any other input
        return Reward(name, rows, "", unasked=f"it fails when called again: {one_line(error)}")
    return Reward(name, rows, "")


def _ways(call: KeptCall) -> Iterator[tuple[str, str, list[int], dict[str, Any]]]:
    rows = call.shape[0]
    if rows > 1:
        back = list(reversed(range(rows)))
        others = "it depends on the other rows"
        yield "in the reverse order", others, back, picked(call, back)
        for row in range(min(rows, 4)):
            yield "for this row alone", others, [row], picked(call, [row])
    pad = getattr(getattr(call.module, "config", None), "pad_token_id", None)
    if not isinstance(pad, int) or (side := _padded_side(call, pad)) is None:
        return
    wider = [widened(call, row, COLUMNS, side, pad) for row in range(rows)]
    joined = {
        key: torch.cat([one[key] for one in wider])
        for key in wider[0]
        if torch.is_tensor(wider[0][key])
    }
    yield "with more padding", "it depends on the padding", list(range(rows)), joined


def _padded_side(call: KeptCall, pad: int) -> str | None:
    """Return the side where rows may have more padding; None without a mask, and without a row that
    shows padding."""
    if call.ids is None:
        return None
    begins, ends = (bool((call.ids[:, at] == pad).any()) for at in (0, -1))
    if begins and not ends:
        return "left"
    return "right" if ends or call.mask is not None else None
