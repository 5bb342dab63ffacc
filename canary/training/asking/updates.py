"""Beside each trained row: what its weights are, and who scored it without gradients.

References and old policies look the same here. No logits are kept, only log-probabilities of the
rows' own tokens.
"""

from __future__ import annotations

import contextlib
import math
import re
import sys
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import nn

from canary.training.asking.calls import SURE, Adapters, Call
from canary.training.collectors.aside import attributes_set
from canary.training.facts.updates import draws

CONSTANT = 2e-3
"""Relative: weights that differ by less are the same."""
CLOSE = 1e-5
"""Two calls of the same weights say the same, relative to a log-probability of at least 1."""
NEARLY_CERTAIN = math.log(0.99)
"""The weight of a likelier token is read from a difference of almost equal numbers."""
LEAST_TOKENS = 4
"""Of a row: with fewer, a correlation says nothing."""
LEAST_SPREAD = 1e-6
"""Of log-probabilities or relative weights; less is rounding."""
MOST_TOKENS = 1 << 21
"""Log-probabilities that are kept, of the newest calls."""
NOT_THE_TRAINING = ("torch", "canary")
"""Packages whose frames say nothing about the training."""
KINDS = ("class", "function", "module", "file")
ENGLISH = re.compile("[aouAOU]ppo[inrs]")
"""Of `support`, `suppose`, `opportunity`, `opponent`, `appoint`: these do not name PPO."""


@dataclass(frozen=True)
class Row:
    """A trained row of an update."""

    key: bytes
    """Its tokens."""
    prompt: bytes
    """Those before the first one that is trained on."""
    tokens: int
    """Tokens that are trained on."""
    mean: float
    """Mean weight of these tokens; negative if the loss lowers them."""
    spread: float
    """Largest distance of a weight to the mean, relative to the mean."""
    itself: bool
    """Whether the policy was called without gradients too, in this update and in the same state,
    and said the same."""
    elsewhere: bool
    """Whether the row has log-probabilities without gradients of something else."""
    towards: float | None
    """Correlation of the weights with how much likelier the reference finds a token."""
    apart: float | None
    """Largest difference of the policy's log-probabilities with and without gradients."""

    @property
    def total(self) -> float:
        """The sum of its weights."""
        return self.mean * self.tokens

    @property
    def is_constant(self) -> bool:
        """Whether all tokens weigh the same."""
        return self.spread <= CONSTANT


@dataclass(frozen=True)
class Update:
    """One update, from 1."""

    number: int
    rows: list[Row]
    """Empty if the gradient does not show what each token weighs."""
    called: tuple[str, ...]
    """Names of classes, functions, modules and files that it runs in, with their kind."""


@dataclass(eq=False)
class Scored:
    """One call without gradients. The training may free the model after it."""

    model: weakref.ref[nn.Module]
    source: int
    """The id of the model."""
    adapters: Adapters
    is_random: bool
    """Whether it drew at random."""
    update: int
    """Updates before the call."""
    rows: dict[bytes, torch.Tensor]
    """The log-probabilities of each row's real tokens but the first, by these tokens."""
    is_reference: bool = False
    """Whether it was another model than the policy of the newest update, or had other adapters."""
    is_now: bool = False
    """Whether it was that policy, after the update before."""


class ScoredRows:
    """Keeps the newest calls without gradients of this process."""

    def __init__(self) -> None:
        self.calls: list[Scored] = []
        self._tokens = 0

    def called(self, call: Call, updates: int) -> None:
        """Keep what a whole model said of its rows."""
        known, module = call.log_probs, call.module
        if known is None:
            return
        rows = {key: known[row, at[1:] - 1] for row, (key, at) in enumerate(_keys(call))}
        draws = _has_dropout(module, call.adapters)
        self.calls.append(
            Scored(weakref.ref(module), id(module), call.adapters, draws, updates, rows)
        )
        self._tokens += known.numel()
        while self._tokens > MOST_TOKENS:
            self._tokens -= sum(map(len, self.calls.pop(0).rows.values()))

    def tell(
        self, policy: nn.Module, adapters: Adapters, updates: int
    ) -> dict[bytes, list[Scored]]:
        """Tell what each call was to an update, and return the calls by row, the newest first."""
        found: dict[bytes, list[Scored]] = {}
        trained = {id(value) for value in policy.parameters() if value.requires_grad}
        for one in reversed(self.calls):
            model = one.model()
            values = () if model is None else model.parameters()
            # The policy may be in another wrapper, and a reference may share layers.
            is_own = 2 * len(trained & {*map(id, values)}) > len(trained)
            one.is_reference = not is_own or one.adapters != adapters
            one.is_now = not one.is_reference and one.update == updates
            for key in one.rows:
                found.setdefault(key, []).append(one)
        return found


def _layers(model: nn.Module) -> list[Any]:
    both = ("_disable_adapters", "_active_adapter")  # Attributes of peft's class: quick to ask.
    return [one for one in model.modules() if all(hasattr(type(one), name) for name in both)]


def adapters_of(model: nn.Module) -> Adapters:
    """Return the state of a model's adapters of peft; empty if it has none."""
    states = ((one._disable_adapters, one._active_adapter) for one in _layers(model))
    return tuple((off, (on,) if isinstance(on, str) else tuple(on)) for off, on in states)


def without_adapters(model: nn.Module) -> contextlib.AbstractContextManager[None]:
    """Switch adapters off within a block. After peft's own `disable_adapter`, all would train."""
    return attributes_set(*((one, "_disable_adapters", True) for one in _layers(model)))


def _has_dropout(model: nn.Module, adapters: Adapters) -> bool:
    """Whether a model draws at random as it is; dropout of disabled adapters does not."""
    is_off = all(disabled for disabled, _ in adapters)
    return any(
        one.training and draws(one) and not (is_off and "lora" in name)
        for name, one in model.named_modules()
    )


def _keys(call: Call) -> Iterator[tuple[bytes, torch.Tensor]]:
    """Yield each row's real tokens as a key of 8 bytes per token, with their places."""
    mask = torch.ones_like(call.ids) if call.mask is None else call.mask
    for line, real in zip(call.ids.cpu(), mask.bool().cpu(), strict=True):
        yield line[real].long().numpy().tobytes(), real.nonzero().flatten()


def trained_rows(call: Call, by_row: dict[bytes, list[Scored]]) -> list[Row]:
    """Return the trained rows of a call; empty if it does not show them."""
    if call.weights is None or call.labels is None or call.log_probs is None:
        return []
    weights, trained = call.weights[:, 1:], call.weights[:, 1:] != 0
    alike = call.labels[:, 1:] == call.ids[:, 1:].cpu()
    if float(alike[trained].float().mean()) < SURE:
        return []
    made = []
    for row, (key, places) in enumerate(_keys(call)):
        known, own = weights[row, places[1:] - 1], call.log_probs[row, places[1:] - 1]
        used = (known != 0).nonzero().flatten().tolist()
        prompt = key[: 8 * (used[0] + 1) if used else None]
        made.append(_row(key, prompt, known, own, by_row.get(key, [])))
    return made


def _row(
    key: bytes, prompt: bytes, weights: torch.Tensor, own: torch.Tensor, said: Sequence[Scored]
) -> Row:
    trained = weights != 0
    sure = trained & (own < NEARLY_CERTAIN)
    sure = sure if bool(sure.any()) else trained
    values = weights[sure]
    mean = float(values.mean()) if len(values) else 0.0
    largest = float((values - mean).abs().max()) if len(values) else 0.0
    others = {
        (one.source, one.adapters): (one.rows[key] - own)[sure]
        for one in reversed(said)
        if one.is_reference
    }
    # The newest comes first: dropout may differ between calls.
    now = [(one.rows[key] - own)[trained].abs() for one in said if one.is_now]
    close = [bool((one <= CLOSE * own[trained].abs().clamp_min(1)).all()) for one in now]
    return Row(
        key,
        prompt,
        int(trained.sum()),
        mean,
        largest / abs(mean) if mean else (math.inf if largest else 0.0),
        any(close),
        len(said) > len(now) or not all(close),
        _towards(values, [*others.values()]),
        float(now[0].max()) if now and bool(trained.any()) else None,
    )


def _towards(weights: torch.Tensor, likelier: Sequence[torch.Tensor]) -> float | None:
    """Return the correlation of weights with the only reference that differs from the policy."""
    if len(weights) < LEAST_TOKENS:
        return None
    finite = [one for one in likelier if bool(one.isfinite().all())]
    differ = [one for one in finite if float(one.std()) > LEAST_SPREAD]
    if len(differ) != 1 or float(weights.std()) <= LEAST_SPREAD * float(weights.abs().mean()):
        return None
    # The gradient of exp(d) - d - 1, and that of d * d / 2.
    pairs = (torch.stack([weights, one]).double() for one in (differ[0].expm1(), differ[0]))
    found = [float(torch.corrcoef(one)[0, 1]) for one in pairs]
    return max((one for one in found if one == one), key=abs, default=None)


def names_on_stack() -> tuple[str, ...]:
    """Return the names of classes, functions, modules and files that call, each with its kind, as
    `class GRPO`."""
    found: set[str] = set()
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        module, code = str(frame.f_globals.get("__name__", "")), frame.f_code
        if module.split(".")[0] not in NOT_THE_TRAINING:
            found |= {f"function {code.co_name}", f"file {Path(code.co_filename).name}"}
            found |= {f"module {part}" for part in module.split(".") if part != "__main__"}
            if code.co_argcount and code.co_varnames[0] in ("self", "cls"):
                owner = frame.f_locals.get(code.co_varnames[0])
                # A proxy lies about its class.
                kind: Any = owner if issubclass(type(owner), type) else type(owner)
                found |= {f"class {one.__name__}" for one in kind.__mro__}
        frame = frame.f_back
    return tuple(sorted(found, key=lambda name: (KINDS.index(name.split()[0]), name)))


def is_called(updates: Sequence[Update], *parts: str) -> str:
    """Return the first name that has one of these parts; empty without one."""
    for name in dict.fromkeys(name for one in updates for name in one.called):
        if any(part in ENGLISH.sub("", name).lower() for part in parts):
            return name
    return ""
