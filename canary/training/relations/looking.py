"""What relations see of a training, with the means to ask its model again."""

from __future__ import annotations

import contextlib
import functools
import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.optim.lr_scheduler import LRScheduler

from canary.relations.documents import Document
from canary.relations.leftover import Buffer
from canary.relations.relation import CannotAsk, Changed, Outcome, outcome
from canary.relations.sampling import Sampling
from canary.relations.trained import TrainedUpdate
from canary.training.exact.fingerprints import tokenizer_of
from canary.training.relations import rows
from canary.training.relations.adapters import adapters_of
from canary.training.relations.calls import KeptCall, called, scored
from canary.training.relations.checkpoints import switched
from canary.training.relations.compiling import compiled_scores
from canary.training.relations.drawn import DrawnRows
from canary.training.relations.merging import merged
from canary.training.relations.references import Reference
from canary.training.relations.rounding import (
    DRAWS,
    epsilon,
    perturbed,
    rounding_of,
    tolerance,
)
from canary.training.relations.scheduled import rate_of, wanted_rates
from canary.training.relations.swapping import calls_of_loss, swapped_inputs
from canary.training.relations.tokenizers import LivingTokenizers

ROUNDS_WEIGHTS = ("merge", "reference_start")
"""Relations of models whose weights may be rounded in two ways."""


@dataclass
class TrainingLook:
    """See `canary.relations.relation.Look`."""

    model: nn.Module
    calls: list[KeptCall]
    optimizers: list[torch.optim.Optimizer]
    trainer: Any = None
    others: list[tuple[nn.Module, KeptCall]] = field(default_factory=list)
    """Other models that were called without gradients, with their first call."""
    pad_id: int | None = None
    eos_ids: frozenset[int] = frozenset()
    modes: list[bool] = field(default_factory=list)
    updates: int = 0
    changed: Changed | None = None
    lost: int = 0
    first_gradients: dict[str, int] = field(default_factory=dict)
    rates: list[float] = field(default_factory=list)
    brought: bool = False
    """Whether the training brings its own optimizer."""
    drawn: DrawnRows | None = None
    inputs: dict[str, Any] | None = None
    """The first batch that the trainer's loss was computed of."""
    buffer: Buffer = field(default_factory=Buffer)
    sampling: Sampling = field(default_factory=Sampling)
    trained: list[TrainedUpdate] = field(default_factory=list)
    scorers: list[Reference] = field(default_factory=list)
    """Who scored the first update's rows without gradients."""
    tokenizers: LivingTokenizers = field(default_factory=LivingTokenizers)
    _rounding: dict[tuple[int, bool], float] = field(default_factory=dict)

    @functools.cached_property
    def tokenizer(self) -> Any:
        """The trainer's tokenizer, or the only one of a loop."""
        if self.trainer is not None:
            found = tokenizer_of(self.trainer)
            return getattr(found, "tokenizer", found)
        return self.tokenizers.only()

    @functools.cached_property
    def examples(self) -> list[Mapping[str, Any]]:
        """Rows of the trainer's dataset that its loader has drawn."""
        return [] if self.drawn is None else self.drawn.examples()

    def documents(self, call: KeptCall) -> list[Document]:
        """Return the texts of a call; see `Look`."""
        if call.ids is None or call.weights is None or call.labels is None:
            raise CannotAsk("the gradient does not show what each token is trained towards")
        return rows.documents(call, self.spans(call))

    def strengths_by_place(self, call: KeptCall) -> list[list[float]]:
        """Return how strongly the loss pulls at each token; see `Look`."""
        return rows.strengths_by_place(call)

    def by_place(self, call: KeptCall) -> tuple[list[list[float | None]], list[list[int]]]:
        """Return weights and labels by token; see `Look`."""
        return rows.by_place(call)

    def buffered(self, call: KeptCall) -> None:
        """Note the rows of one more call of the policy."""
        if call.module is self.model and call.ids is not None and not self.buffer.is_full:
            self.buffer.add(call.ids.tolist(), self.spans(call))

    def raised(self, call: KeptCall) -> list[tuple[Document, float]]:
        """Return how much the loss raises each text of a call; see `Look`."""
        if call.ids is None:
            return []
        if call.scores_tokens:
            return [(one, one.raised) for one in self.documents(call)]
        if call.gradient is None or call.shape[1:] != (1,):
            return []
        down = call.gradient.float().flatten().tolist()
        texts = rows.texts(call, self.spans(call))
        return [(text, -amount) for text, amount in zip(texts, down, strict=True)]

    def compiled(self, call: KeptCall) -> torch.Tensor | None:
        """Return the scores of a traced call; see `Look`."""
        return compiled_scores(call)

    def swapped(self) -> list[tuple[Document, float]] | None:
        """Return the same for a batch with swapped rows; see `Look`."""
        inputs = None if self.inputs is None else swapped_inputs(self.trainer, self.inputs)
        if inputs is None:
            return None
        found = calls_of_loss(self.trainer, self.model, inputs)
        return [one for call in found for one in self.raised(call)]

    @property
    def call(self) -> KeptCall:
        """The first call with several rows, else the first one."""
        return next((one for one in self.calls if one.shape[0] > 1), self.calls[0])

    @property
    def references(self) -> list[tuple[nn.Module, KeptCall]]:
        """Other models of the policy's shapes."""
        own = _shapes(self.model)
        return [one for one in self.others if _shapes(one[0]) == own]

    @property
    def reference_calls(self) -> list[Reference]:
        """Who may be a reference; see `Look`."""
        own = _shapes(self.model)
        found = [one for one in self.scorers if one.is_policy or _shapes(one.module) == own]
        known = {id(one.module) for one in found}
        others = [one for one, _ in self.references if id(one) not in known]
        return [*found, *(Reference(one, adapters_of(one), (), False) for one in others)]

    @property
    def schedulers(self) -> list[tuple[Any, int]]:
        """Schedulers of the policy's optimizers, and how often each stepped after its start."""
        mine = {id(one) for one in self.optimizers}
        found = [
            one
            for one in gc.get_objects()
            if (LRScheduler in type(one).__mro__ and id(getattr(one, "optimizer", None)) in mine)
            or (LRScheduler in type(one).__mro__ and self._wraps(one))
        ]
        return [(one, int(one._step_count) - 1) for one in found]

    def wanted_rates(self) -> list[float] | None:
        """Return the rates that a trainer's arguments give; see `Look`."""
        if self.trainer is None or not self.optimizers:
            return None
        rate = rate_of(self.trainer, self.optimizers[0], self.brought)
        return wanted_rates(self.trainer, self.updates, rate)

    def _wraps(self, scheduler: Any) -> bool:
        """Whether a scheduler's optimizer is a wrapper around one of the policy's."""
        inner = getattr(getattr(scheduler, "optimizer", None), "optimizer", None)
        return any(inner is one for one in self.optimizers)

    def scores(self, call: KeptCall, **changed: Any) -> torch.Tensor:
        """Call the model again; see `Look`."""
        return scored(call, **changed)

    def compared(
        self,
        relation: str,
        call: KeptCall,
        before: torch.Tensor,
        after: torch.Tensor,
        counts: torch.Tensor | None = None,
    ) -> Outcome:
        """Compare scores within the tolerance."""
        apart = (after.double() - before.double()).abs().nan_to_num(nan=float("inf"))
        if counts is not None:
            apart = torch.where(counts, apart, torch.zeros_like(apart))
        if not apart.numel():
            raise CannotAsk("there is nothing to compare")
        allowed, worst = self._allowed(call, relation), float(apart.max())
        what = "log-probabilities" if call.scores_tokens else "scores"
        if worst <= allowed:
            words = f"{what} differ by at most {worst:.2g}, allowed {allowed:.2g}"
            return outcome(relation, "holds", words, tolerance=allowed)
        first = (apart > allowed).nonzero()[0].tolist()
        values = [float(one[tuple(first)]) for one in (before, after)]
        word = "log-probability" if call.scores_tokens else "score"
        message = f"a {word} of {values[0]:.6g} becomes {values[1]:.6g}, allowed {allowed:.2g}"
        names = ("row", "token") if call.scores_tokens else ("row", "class")
        place = ", ".join(f"{name} {at}" for name, at in zip(names, first, strict=False))
        return outcome(relation, "broken", message, place, values, allowed)

    def _allowed(self, call: KeptCall, relation: str) -> float:
        """Return the tolerance of a call's scores."""
        key = id(call), relation in ROUNDS_WEIGHTS
        if key not in self._rounding:
            self._rounding[key] = rounding_of(call, weights=key[1])
        return self._rounding[key]

    def gradients(self, call: KeptCall) -> dict[str, torch.Tensor] | None:
        """Run forward and backward of a call again; see `Look`."""
        if call.gradient is None:
            return None
        named = [(name, one) for name, one in call.module.named_parameters() if one.requires_grad]
        torch.manual_seed(0)
        with torch.enable_grad():
            logits = called(call)
            # Not by backward(), which a plain loop is followed by.
            try:
                found = torch.autograd.grad(
                    logits, [one for _, one in named], call.gradient, allow_unused=True
                )
            except RuntimeError as error:
                if "use_reentrant" not in str(error):
                    raise
                raise CannotAsk(
                    "checkpoints with use_reentrant=True allow no second look"
                ) from error
        pairs = zip(named, found, strict=True)
        return {name: one.detach() for (name, _), one in pairs if one is not None}

    def compared_gradients(
        self, relation: str, before: Mapping[str, torch.Tensor], after: Mapping[str, torch.Tensor]
    ) -> Outcome:
        """Compare gradients within the tolerance."""
        eps = epsilon(self.model, self.call.autocast)
        moved: dict[str, float] = dict.fromkeys(before, 0.0)
        training = self.model.training
        for seed in range(DRAWS):
            with perturbed(self.model, eps, seed):
                again = self.gradients(self.call) or {}
            for name, one in again.items():
                moved[name] = max(moved.get(name, 0.0), float((one - before[name]).abs().max()))
        self.model.train(training)
        worst = 0.0
        for name in after:
            if name not in before:
                words = "this parameter has a gradient in the second way only"
                return outcome(relation, "broken", words, name)
        for name, one in before.items():
            other = after.get(name)
            apart = float("inf") if other is None else float((other - one).abs().max())
            allowed = tolerance(moved[name], float(one.abs().max()), eps)
            if not apart <= allowed:
                message = f"the gradient differs by {apart:.2g}, allowed {allowed:.2g}"
                values = [float(one.norm()), float("nan") if other is None else float(other.norm())]
                return outcome(relation, "broken", message, name, values, allowed)
            worst = max(worst, apart)
        differ = f"differ by at most {worst:.2g}" if worst else "are equal"
        words = f"{len(before)} gradients {differ}"
        return outcome(relation, "holds", words)

    @contextlib.contextmanager
    def other_checkpointing(self) -> Iterator[None]:
        """Switch activation checkpointing the other way; see `Look`."""
        with switched(self.model):
            yield

    def merged(self) -> AbstractContextManager[int]:
        """Merge the adapters of the model's own modules; see `Look`."""
        return merged(self.model)

    def spans(self, call: KeptCall) -> Sequence[tuple[int, int]]:
        """Return (first, end) of each row's example."""
        return rows.spans(call, self.pad_id, self.eos_ids)

    def counted(self, call: KeptCall, scores: torch.Tensor) -> torch.Tensor:
        """Return True where a score counts."""
        return rows.counted(call, scores, self.spans(call))

    def example(
        self, scores: torch.Tensor, row: int, span: tuple[int, int], width: int
    ) -> torch.Tensor:
        """Return the scores of one example."""
        return rows.example(scores, row, span, width)

    def picked(self, call: KeptCall, places: Sequence[int]) -> dict[str, Any]:
        """Return the arguments of some rows."""
        return rows.picked(call, places)

    def cut(self, call: KeptCall, row: int, first: int, end: int) -> dict[str, Any]:
        """Return the arguments of one row between two tokens."""
        return rows.cut(call, row, first, end)

    def widened(self, call: KeptCall, row: int, columns: int, side: str) -> dict[str, Any]:
        """Return the arguments of one row with more padding."""
        assert self.pad_id is not None
        return rows.widened(call, row, columns, side, self.pad_id)

    def named_parameters(self) -> list[tuple[str, Any]]:
        """Return the policy's parameters by name."""
        return list(self.model.named_parameters())


def _shapes(model: nn.Module) -> dict[str, tuple[int, ...]]:
    return {
        name.removeprefix("module."): tuple(value.shape) for name, value in model.named_parameters()
    }
