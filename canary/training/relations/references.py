"""Beside each trained row: what its weights are, and what a reference says of the same tokens."""

from __future__ import annotations

import sys
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

import torch
from torch import nn

from canary.protocol.failure import one_line
from canary.relations.sampling import Sampling
from canary.relations.trained import TrainedRow, TrainedUpdate
from canary.training.collectors.uncounted import uncounted
from canary.training.collectors.wrapping import Wrapping
from canary.training.random_states import kept_random
from canary.training.relations.adapters import (
    State,
    adapters_in_words,
    with_adapters,
)
from canary.training.relations.calls import KeptCall, scored, undisturbed
from canary.training.relations.scored import (
    UNKNOWN,
    Scored,
    ScoredRows,
)
from canary.training.relations.temperature import nearest
from canary.training.relations.trained_rows import trained_rows
from canary.training.sampling.matching import Match
from canary.training.sampling.watch import SamplingWatch
from canary.training.sampling.weights import shares

NOT_THE_TRAINING = ("torch", "canary")
"""Packages whose frames say nothing about the training."""
DEEPEST = 64

MOST_LOSSES = 1024
MOST_UPDATES = 8
"""Updates whose rows are kept."""


@dataclass(eq=False)
class Reference:
    """Who scored trained rows without gradients, and is not the policy as it trains; see
    `canary.relations.relation.Reference`."""

    module: nn.Module
    adapters: State
    modes: tuple[bool, ...]
    is_policy: bool
    """Whether it is the policy with other adapters."""

    @property
    def what(self) -> str:
        """Who it is, for people."""
        if not self.is_policy:
            return "the reference"
        return f"the reference, which is the policy {adapters_in_words(self.adapters)},"

    @property
    def training(self) -> bool:
        """Whether it was in training mode."""
        return any(self.modes)

    def scores(self, call: KeptCall, seed: int | None = None) -> torch.Tensor:
        """Ask it about a call of the policy. `seed`: in its own modes, with these random numbers;
        None: in evaluation mode."""
        module, own = call.module, self.module
        with undisturbed(own), kept_random(), with_adapters(own, self.adapters):
            if seed is not None:
                torch.manual_seed(seed)
                for part, training in zip(own.modules(), self.modes, strict=False):
                    part.training = training
            try:
                call.module = own
                return scored(call)
            finally:
                call.module = module


class Follows(Protocol):
    """The look that sees what is kept."""

    model: nn.Module
    sampling: Sampling
    trained: list[TrainedUpdate]
    scorers: list[Reference]


@dataclass
class Updates:
    """Follows the updates of one policy, until `end`."""

    scored: ScoredRows
    found: list[TrainedUpdate] = field(default_factory=list)
    _losses: deque[torch.Tensor] = field(default_factory=lambda: deque(maxlen=MOST_LOSSES))
    """Of the backward passes since the last update."""
    _wrapping: Wrapping = field(default_factory=Wrapping)

    def begin(self) -> None:
        """Follow backward passes from here on."""
        self.scored.is_over = False
        self._wrapping.wrap(torch.autograd, "backward", self._backward)

    def of_other(self) -> Updates:
        """Return the updates of another policy of this process."""
        return Updates(self.scored, _losses=self._losses)

    def end(self) -> None:
        """Follow no longer."""
        self._wrapping.undo()
        self.scored.end()

    def _backward(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        given: Any = args[0] if args else kwargs.get("tensors")
        several = given if isinstance(given, list | tuple) else [given]
        for one in several:
            is_loss = torch.is_tensor(one) and one.numel() == 1 and one.is_floating_point()
            if is_loss and not torch.compiler.is_compiling():
                with uncounted():
                    self._losses.append(one.detach().clone())
        return original(*args, **kwargs)

    def begins(self, look: Follows, calls: Sequence[KeptCall], sampling: SamplingWatch) -> None:
        """Keep what the calls of an update show, and let the look see it."""
        look.sampling, look.trained = sampling.found, self.found
        if self.scored.is_over:
            return
        losses = tuple(float(one) for one in self._losses)
        self._losses.clear()
        number, names = len(self.found) + 1, names_on_stack()
        try:
            rows = self._rows(look, calls, sampling)
            self.found.append(TrainedUpdate(number, rows, losses, names))
        except Exception as error:  # noqa: BLE001 - a user's model may return anything
            why = f"the trained rows cannot be read: {one_line(error)}"
            self.found.append(TrainedUpdate(number, (), losses, names, why))
        self.scored.updates += 1
        measured = sorted(one.temperature for one in calls if one.temperature is not None)
        if measured:
            self.scored.temperature = nearest(measured[len(measured) // 2])
        if number >= MOST_UPDATES:
            self.end()

    def _rows(
        self, look: Follows, calls: Sequence[KeptCall], sampling: SamplingWatch
    ) -> tuple[TrainedRow, ...]:
        calls = [one for one in calls if shares(one.module, look.model)]
        groups = _whole_groups(sampling.matches, sampling.prompts)
        sides = _Sides(look.model, calls, self.scored, sampling.samplers)
        rows = [trained_rows(one, groups, sides.of_row) for one in calls]
        if not self.found:
            look.scorers = sides.references
        return tuple(one for some in rows for one in some) if all(rows) else ()


def _whole_groups(
    matches: Sequence[Match], prompts: Mapping[tuple[int, ...], int]
) -> dict[tuple[int, int], int]:
    """Return the group of each row, by its call and place. Groups that a trainer spreads over
    several updates are left out."""
    here = Counter(one.sampled.prompt for one in matches)
    whole = [one for one, count in here.items() if one and prompts.get(one) == count]
    numbers = {prompt: number for number, prompt in enumerate(whole)}
    return {
        (id(one.call), one.row): numbers[one.sampled.prompt]
        for one in matches
        if one.sampled.prompt in numbers
    }


class _Sides:
    """Tells who scored the rows of an update without gradients."""

    def __init__(
        self,
        policy: nn.Module,
        trained: Sequence[KeptCall],
        rows: ScoredRows,
        samplers: Set[int],
    ) -> None:
        self._now, self._temperature = rows.updates, rows.temperature
        self._adapters = trained[0].adapters if trained else ()
        self._by_row: dict[bytes, list[Scored]] = {}
        self._own: dict[int, bool] = {}
        """Whether a model is the policy, by its id."""
        for call in rows.calls:
            if call.source not in self._own:
                model = call.model()
                self._own[call.source] = model is not None and _is_policy(model, policy)
            if self._own[call.source] or call.source not in samplers:
                for key in call.keys:
                    self._by_row.setdefault(key, []).append(call)
        self.references: list[Reference] = []

    def of_row(self, key: bytes) -> Iterator[tuple[Scored, str, torch.Tensor]]:
        """Yield each call that scored a row, the newest first, with who it is and what it said.
        That is the policy `now`, the policy `before` an update, or a `reference`."""
        for call in reversed(self._by_row.get(key, [])):
            said = call.of_row(key)
            if said is None:
                continue
            own = self._own[call.source]
            if own and call.adapters == self._adapters:
                yield call, "now" if call.update == self._now else "before", said
            else:
                self._note(call, own)
                alike = call.temperature == self._temperature
                yield call, "reference", said if alike else torch.full_like(said, UNKNOWN)

    def _note(self, call: Scored, own: bool) -> None:
        model = call.model()
        known = ((one.module, one.adapters) for one in self.references)
        if model is not None and all(known_one != (model, call.adapters) for known_one in known):
            self.references.append(Reference(model, call.adapters, call.modes, own))


def _is_policy(model: nn.Module, policy: nn.Module) -> bool:
    """Whether a model is the policy, in another wrapper perhaps. A reference may share layers."""
    trained = {id(value) for value in policy.parameters() if value.requires_grad}
    return 2 * len(trained & {id(value) for value in model.parameters()}) > len(trained)


def names_on_stack() -> tuple[str, ...]:
    """Return the names of classes, functions, modules and files that call, each with its kind, as
    `class GRPO`."""
    found: dict[str, None] = {}
    frame: FrameType | None = sys._getframe(1)
    for _ in range(DEEPEST):
        if frame is None:
            break
        module = str(frame.f_globals.get("__name__", ""))
        if module.split(".")[0] not in NOT_THE_TRAINING:
            found |= dict.fromkeys(_names(frame, module))
        frame = frame.f_back
    order = ("class", "function", "module", "file")
    return tuple(sorted(found, key=lambda name: order.index(name.split()[0])))


def _names(frame: FrameType, module: str) -> list[str]:
    code = frame.f_code
    names = [f"function {code.co_name}", f"file {Path(code.co_filename).name}"]
    names += [f"module {part}" for part in module.split(".") if part != "__main__"]
    if code.co_argcount and code.co_varnames[0] in ("self", "cls"):
        owner: Any = frame.f_locals.get(code.co_varnames[0])
        kind = (
            owner if issubclass(type(owner), type) else type(owner)
        )  # a proxy lies about its class
        names += [f"class {one.__name__}" for one in kind.__mro__ if one is not object]
    return names
