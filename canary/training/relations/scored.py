"""What models say of rows without gradients: the log-probability of each row's own tokens.

References, old policies and samplers look the same here. No logits are kept.
"""

from __future__ import annotations

import functools
import weakref
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from canary.training.relations.adapters import State, adapters_of
from canary.training.relations.calls import IGNORE, LEAST_VOCABULARY, Says, bound, said_of, shape_of
from canary.training.relations.naming import own_names

MOST_TOKENS = 1 << 21
"""Log-probabilities that are kept, of the newest calls."""
UNKNOWN = float("nan")


@dataclass(eq=False)
class Scored:
    """One call without gradients."""

    model: weakref.ref[nn.Module]
    """What was called; a training may free a reference after its calls."""
    source: int
    """Its id."""
    ids: torch.Tensor
    """Shape (rows, tokens)."""
    mask: torch.Tensor | None
    log_probs: torch.Tensor
    """Shape (rows, tokens - 1): of each token but the first; UNKNOWN where it was not asked for."""
    adapters: State
    modes: tuple[bool, ...]
    """Whether each part of the model was in training mode; empty if the model was not."""
    update: int
    """Updates before the call."""
    temperature: float = 1.0
    """Of the log-probabilities."""

    @functools.cached_property
    def _rows(self) -> dict[bytes, tuple[int, torch.Tensor]]:
        """Each row and the places of its real tokens, by these tokens."""
        places = enumerate(real_places(self.ids, self.mask))
        return {key_of(self.ids[row], real): (row, real) for row, real in places}

    def of_row(self, key: bytes) -> torch.Tensor | None:
        """Return the log-probabilities of a row's real tokens but the first."""
        if key not in self._rows:
            return None
        row, places = self._rows[key]
        return self.log_probs[row, places[1:] - 1]

    @property
    def keys(self) -> Iterable[bytes]:
        """The rows, by their real tokens."""
        return self._rows

    def goes_on_as(self, ids: torch.Tensor) -> bool:
        """Whether another call has these rows with one token more: then they are being sampled."""
        rows, tokens = self.ids.shape
        return ids.shape == (rows, tokens + 1) and bool((ids[:, :-1] == self.ids).all())


class ScoredRows:
    """Keeps the newest calls without gradients of this process."""

    def __init__(self) -> None:
        self._calls: OrderedDict[int, Scored] = OrderedDict()
        """By id, the newest last. There may be many: a loop may score its data row by row."""
        self._newest: dict[int, Scored] = {}
        """Of each model, by its id."""
        self._tokens = 0
        self.updates = 0
        """Updates so far."""
        self.temperature = 1.0
        """Of the log-probabilities that are kept from here on."""
        self.is_over = False
        """Whether no more calls are needed."""

    def called(self, module: nn.Module, args: Any, kwargs: Mapping[str, Any], output: Any) -> None:
        """Keep what a whole model said of its rows, if it did so without gradients."""
        known = None if self.is_over else said_of(output)
        if known is None or known[1].requires_grad or not _scores_rows(*known):
            return
        named = bound(module, args, {k: v for k, v in kwargs.items() if torch.is_tensor(v)})
        names = own_names(named, shape_of(module, *known))
        ids: Any = named.get(names.get("input_ids", "input_ids"))
        mask: Any = named.get(names.get("attention_mask", "attention_mask"))
        if not torch.is_tensor(ids) or ids.dim() != 2 or ids.shape[1] < 2:
            return
        log_probs = self.own(*known, ids, named.get("labels"))
        if log_probs is None:
            return
        fits = torch.is_tensor(mask) and mask.shape == ids.shape
        self._keep(
            Scored(
                weakref.ref(module),
                id(module),
                ids.cpu(),
                mask.bool().cpu() if fits else None,
                log_probs,
                adapters_of(module),
                tuple(one.training for one in module.modules()) if module.training else (),
                self.updates,
                self.temperature,
            )
        )

    def own(
        self, says: Says, said: torch.Tensor, ids: torch.Tensor, labels: Any = None
    ) -> torch.Tensor | None:
        """Return the log-probabilities of own tokens; see `own_log_probs`."""
        return own_log_probs(says, said, ids, labels, self.temperature)

    @property
    def calls(self) -> list[Scored]:
        """What is kept, the newest last."""
        return [*self._calls.values()]

    def _keep(self, scored: Scored) -> None:
        newest = self._newest.get(scored.source)
        if newest is not None and newest.goes_on_as(scored.ids):
            self._forget(newest)
        self._newest[scored.source] = self._calls[id(scored)] = scored
        self._tokens += scored.log_probs.numel()
        while self._tokens > MOST_TOKENS:
            self._forget(next(iter(self._calls.values())))

    def _forget(self, scored: Scored) -> None:
        if self._calls.pop(id(scored), None) is not None:
            self._tokens -= scored.log_probs.numel()
        if self._newest.get(scored.source) is scored:
            del self._newest[scored.source]

    def end(self) -> None:
        """Keep nothing from here on."""
        self._calls.clear()
        self._newest.clear()
        self._tokens, self.is_over = 0, True


def _scores_rows(says: Says, said: torch.Tensor) -> bool:
    """Whether tokens of rows were scored. A sampler with a cache scores the next token only."""
    if says == "log_probs":
        return said.dim() == 2
    return said.dim() == 3 and said.shape[-1] >= LEAST_VOCABULARY and said.shape[1] > 1


def own_log_probs(
    says: Says,
    said: torch.Tensor,
    ids: torch.Tensor,
    labels: Any = None,
    temperature: float = 1.0,
) -> torch.Tensor | None:
    """Return the log-probability of each token but the first, shape (rows, tokens - 1), on the
    CPU; None if the rows are not those of the ids. `labels`: of a model that returns the
    log-probability of each label."""
    rows, width = ids.shape
    if len(said) != rows or said.shape[1] > width or bool((ids < 0).any()):
        return None
    if says == "logits" and int(ids.max()) >= said.shape[-1]:
        return None
    said = said.detach()
    if says == "log_probs":
        found = right_aligned(said.float().cpu(), width)
        if torch.is_tensor(labels) and labels.shape == ids.shape:
            found = found.masked_fill(labels[:, 1:].cpu() == IGNORE, UNKNOWN)
        return found
    following = ids[:, width - said.shape[1] + 1 :].unsqueeze(-1)
    lines = []
    # Row by row: a copy of all logits may be too large.
    for row in range(rows):
        line = said[row, :-1].float() / temperature
        lines.append(line.gather(-1, following[row]).squeeze(-1) - line.logsumexp(-1))
    return right_aligned(torch.stack(lines).cpu(), width)


def right_aligned(values: torch.Tensor, width: int) -> torch.Tensor:
    """Return values of the last tokens as values of all tokens but the first of `width`."""
    values = values[:, max(0, values.shape[1] - (width - 1)) :]
    found = values.new_full((len(values), width - 1), UNKNOWN, dtype=torch.float32)
    found[:, width - 1 - values.shape[1] :] = values
    return found


def real_places(ids: torch.Tensor, mask: torch.Tensor | None) -> list[torch.Tensor]:
    """Return the places of each row's real tokens."""
    if mask is None:
        return [torch.arange(ids.shape[1])] * len(ids)
    return [row.nonzero().flatten() for row in mask]


def key_of(ids: torch.Tensor, places: torch.Tensor) -> bytes:
    """Return a row's real tokens as a key."""
    return ids[places].long().numpy().tobytes()
