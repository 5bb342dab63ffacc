"""Sampled sequences with the sampler's log-probabilities, from whatever sampled them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from canary.errors import UsageError

UNKNOWN = math.nan
"""A log-probability that the sampler does not tell."""


@dataclass
class Sampled:
    """One sequence: a prompt without padding, and the tokens that were sampled after it."""

    prompt: tuple[int, ...]
    tokens: list[int]
    log_probs: list[float]
    temperature: float | None = None
    engine: nn.Module | None = None
    """The model that sampled, if it is one of this process."""
    training: bool = False
    """Whether that model was in training mode."""
    penalised: bool = False
    """Whether the probabilities are no softmax of the logits, as with a repetition penalty."""
    at_one: bool = False
    """Whether the log-probabilities are those at temperature 1: the sampling's is not known."""
    cut: list[float] = field(default_factory=list)
    """Log-probabilities after top-k or top-p; `UNKNOWN` where nothing was left out."""
    elsewhere: bool = False
    """Whether another process sampled."""

    def add(self, token: int, log_prob: float, cut: float) -> None:
        """Add a sampled token."""
        self.tokens.append(token)
        self.log_probs.append(log_prob)
        self.cut.append(cut)


def rows_of(values: Any) -> list[list[Any]]:
    """Return a tensor, an array or lists as lists.

    Raises:
        UsageError: these are no rows.
    """
    found = values.detach().cpu().tolist() if torch.is_tensor(values) else values
    found = found.tolist() if hasattr(found, "tolist") else found
    try:
        return [one.tolist() if hasattr(one, "tolist") else list(one) for one in found]
    except TypeError as error:
        raise UsageError(
            "canary.sampled needs one row of values per sequence",
            "pass tensors of shape (rows, tokens), or one list per sequence",
        ) from error


def told(
    ids: Any, log_probs: Any, prompt_lengths: Any, mask: Any, temperature: float | None
) -> list[Sampled]:
    """Return what a loop reports by `canary.sampled`.

    Raises:
        UsageError: rows and log-probabilities do not fit.
    """
    lines, known = rows_of(ids), rows_of(log_probs)
    masks = rows_of(mask) if mask is not None else [[1] * len(line) for line in lines]
    if not len(lines) == len(known) == len(masks):
        raise UsageError(
            f"canary.sampled got {len(lines)} rows of ids, {len(known)} of log-probabilities and "
            f"{len(masks)} of the mask",
            "pass one row of each per sequence",
        )
    lengths = _lengths(prompt_lengths, len(lines))
    return [
        _row(number, *row, temperature)
        for number, row in enumerate(zip(lines, known, masks, lengths, strict=True))
    ]


def _lengths(given: Any, rows: int) -> Sequence[int | None]:
    given = given.tolist() if hasattr(given, "tolist") else given
    if given is None:
        return [None] * rows
    if isinstance(given, int | float):
        return [int(given)] * rows
    found = [int(one) for one in given]
    if len(found) != rows:
        raise UsageError(
            f"canary.sampled got {len(found)} prompt_lengths for {rows} rows",
            "pass one number, or one per row",
        )
    return found


def _row(
    number: int,
    line: Sequence[int],
    known: Sequence[float],
    mask: Sequence[Any],
    length: int | None,
    temperature: float | None,
) -> Sampled:
    if len(mask) != len(line):
        raise UsageError(
            f"row {number} of canary.sampled has {len(line)} ids and a mask of {len(mask)}",
            "pass a mask of the shape of ids",
        )
    places = [place for place, real in enumerate(mask) if real]
    of_ids = len(known) == len(line) and length is not None
    prompt = len(places) - len(known) if length is None else length
    if not 0 <= prompt <= len(places) or (not of_ids and len(known) < len(places) - prompt):
        raise UsageError(
            f"row {number} of canary.sampled has {len(places)} ids, a prompt of {prompt} and "
            f"{len(known)} log-probabilities",
            "pass the log-probability of each sampled token",
        )
    sampled = places[prompt:]
    values = [known[place] for place in sampled] if of_ids else known[: len(sampled)]
    return Sampled(
        tuple(int(line[place]) for place in places[:prompt]),
        [int(line[place]) for place in sampled],
        [UNKNOWN if value is None else float(value) for value in values],
        temperature,
    )
