"""Follows sampling inside the process, without a change to it.

A model that samples is called without gradients, and its rows grow by one token per call.
`generate` of transformers and a user's loop look the same. Between two calls, `torch.multinomial`
shows the probabilities that were drawn from.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from operator import eq
from typing import Any

import torch
from torch import nn

from canary.training.collectors.uncounted import uncounted
from canary.training.relations.calls import LEAST_VOCABULARY
from canary.training.relations.temperature import nearest, of_probabilities
from canary.training.sampling.engines import EngineFile
from canary.training.sampling.samples import UNKNOWN, Sampled

MOST_ROWS = 4096
"""Sequences that are kept until the next update."""


@dataclass
class _Drawn:
    """One draw: a token per row."""

    tokens: list[int]
    log_probs: list[float]
    cut: list[float] | None = None
    """After top-k or top-p, if tokens were left out."""

    def rows(self) -> list[tuple[int, float, float]]:
        """Return token, log-probability, and that after top-k or top-p, one per row."""
        cut = self.cut or [UNKNOWN] * len(self.tokens)
        return [*zip(self.tokens, self.log_probs, cut, strict=True)]


@dataclass
class _Stream:
    """Rows that one model extends."""

    module: nn.Module
    ids: torch.Tensor
    """The rows as the model got them last, (rows, tokens)."""
    rows: list[Sampled]
    logits: torch.Tensor
    """Of the last position, (rows, vocabulary)."""
    drawn: _Drawn | None = None
    ended: set[int] = field(default_factory=set)
    draws: bool = False
    """Whether a draw was seen."""
    number: int = 0

    def goes_on(self, ids: torch.Tensor) -> bool:
        """Whether a call with these ids extends the rows: by one token, in a cache or not."""
        if len(ids) != len(self.ids):
            return False
        if ids.shape[1] == 1:
            # Other tokens than the drawn ones begin new rows, unless some rows go on.
            drawn = self.drawn.tokens if self.drawn is not None else None
            tokens = ids[:, 0].tolist()
            return not self.draws if drawn is None else any(map(eq, drawn, tokens))
        return ids.shape[1] == self.ids.shape[1] + 1 and bool((ids[:, :-1] == self.ids).all())

    def chosen(self, tokens: list[int]) -> list[tuple[int, int, float, float]]:
        """Add the tokens that follow, and return them with their rows. A row whose token is not the
        drawn one has ended."""
        drawn, added = self.drawn or self._by_logits(tokens), []
        for row, token in enumerate(tokens):
            if drawn.tokens[row] != token:
                self.ended.add(row)
            if row not in self.ended:
                cut = UNKNOWN if drawn.cut is None else drawn.cut[row]
                added.append((row, token, drawn.log_probs[row], cut))
                self.rows[row].add(token, drawn.log_probs[row], cut)
        self.drawn = None
        return added

    def _by_logits(self, tokens: list[int]) -> _Drawn:
        """Return log-probabilities at temperature 1, if the draw was not seen."""
        known = self.logits.float().log_softmax(-1)
        places = torch.tensor(tokens, device=known.device).unsqueeze(1)
        for one in self.rows:
            one.at_one = True
        return _Drawn(tokens, known.gather(1, places).squeeze(1).tolist())


class Following:
    """Keeps what models of this process sample."""

    def __init__(self) -> None:
        self.samples: list[Sampled] = []
        self._streams: dict[int, _Stream] = {}
        self._last: _Stream | None = None
        self._multinomial: Callable[..., Any] | None = None
        self._count = 0
        self.file: EngineFile | None = None
        """Where a child process tells what it samples."""

    def begin(self, safely: Callable[[], contextlib.AbstractContextManager[None]]) -> None:
        """Follow draws from here on. `safely` keeps errors from the loop."""
        if self._multinomial is None:
            self._multinomial = original = torch.multinomial

            @functools.wraps(original)
            def multinomial(*args: Any, **kwargs: Any) -> Any:
                drawn = original(*args, **kwargs)
                if self._last is not None and not torch.compiler.is_compiling():
                    with uncounted(), torch.no_grad(), safely():
                        self._drew(args[0] if args else kwargs.get("input"), drawn)
                return drawn

            torch.multinomial = multinomial

    def end(self) -> None:
        """Follow no longer."""
        if self._multinomial is not None:
            torch.multinomial = self._multinomial  # type: ignore[assignment]
            self._multinomial = None

    @property
    def active(self) -> bool:
        """Whether something was drawn since the last update."""
        return bool(self.samples) or any(one.drawn for one in self._streams.values())

    def called(self, module: nn.Module, ids: Any, mask: Any, logits: torch.Tensor) -> None:
        """Take a call without gradients; ids (rows, tokens), logits (rows, tokens, vocabulary)."""
        if not torch.is_tensor(ids) or ids.dim() != 2 or ids.is_floating_point():
            return
        if logits.dim() != 3 or logits.shape[-1] < LEAST_VOCABULARY or len(logits) != len(ids):
            return
        stream, last = self._streams.get(id(module)), logits[:, -1].detach().clone()
        if stream is not None and stream.goes_on(ids):
            added = stream.chosen(ids[:, -1].tolist())
            if self.file is not None:
                self.file.went_on(stream.number, added)
            cached = ids.shape[1] == 1
            stream.ids = torch.cat([stream.ids, ids], dim=1) if cached else ids.detach().clone()
            stream.logits = last
        else:
            self._finish(stream)
            stream = self._streams[id(module)] = _Stream(
                module, ids.detach().clone(), _prompts(module, ids, mask), last
            )
            self._count += 1
            stream.number = self._count
        self._last = stream

    def _drew(self, probabilities: Any, drawn: Any) -> None:
        stream = self._last
        assert stream is not None
        if not torch.is_tensor(probabilities) or not torch.is_tensor(drawn):
            return
        if probabilities.dim() == 1:  # A loop may draw for one row at a time.
            probabilities, drawn = probabilities.unsqueeze(0), drawn.unsqueeze(0)
        if probabilities.shape != stream.logits.shape:
            return
        if drawn.shape != (len(probabilities), 1):
            return
        logits = stream.logits.float()
        wide = probabilities.double()
        known = (wide / wide.sum(-1, keepdim=True)).log()
        measured = of_probabilities(logits, probabilities)
        temperature = None if measured is None else nearest(measured)
        cut = None
        if temperature is not None and bool((probabilities == 0).any()):
            # Tokens that were left out, by top-p for instance, are part of what is trained.
            cut = known.gather(1, drawn).squeeze(1).tolist()
            known = (logits.double() / temperature).log_softmax(-1)
        for row in stream.rows:
            row.temperature = temperature if row.temperature is None else row.temperature
            row.penalised |= temperature is None and bool(logits.isfinite().all())
        begins = not stream.draws
        stream.draws = True
        scores = known.gather(1, drawn).squeeze(1).tolist()
        stream.drawn = _Drawn(drawn.squeeze(1).tolist(), scores, cut)
        if self.file is not None:
            if begins:
                self.file.began(stream.number, stream.rows)
            self.file.drew(stream.number, stream.rows, stream.drawn.rows())

    def taken(self) -> list[Sampled]:
        """Return what was sampled since the last call of this method."""
        for stream in self._streams.values():
            self._finish(stream)
        self._streams, self._last = {}, None
        found, self.samples = self.samples, []
        return found

    def _finish(self, stream: _Stream | None) -> None:
        if stream is None:
            return
        if stream.drawn is not None:
            stream.chosen(stream.drawn.tokens)
        if len(self.samples) < MOST_ROWS:
            self.samples += [one for one in stream.rows if one.tokens]


def _prompts(module: nn.Module, ids: torch.Tensor, mask: Any) -> list[Sampled]:
    fits = torch.is_tensor(mask) and mask.shape == ids.shape
    real = mask.bool() if fits else torch.ones_like(ids, dtype=torch.bool)
    return [
        Sampled(
            tuple(token for token, keep in zip(row, kept, strict=True) if keep),
            [],
            [],
            engine=module,
            training=module.training,
        )
        for row, kept in zip(ids.tolist(), real.tolist(), strict=True)
    ]
