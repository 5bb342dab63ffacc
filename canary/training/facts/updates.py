"""Watches the updates of a look: what optimizers hold and change, and what happens around them."""

from __future__ import annotations

import contextlib
import functools
import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data.dataloader import _BaseDataLoaderIter

from canary.record.exact import Exact
from canary.record.facts import ClipFacts, Facts, Holding, Schedule, UpdateFacts
from canary.training.collectors.aside import Wrapping, in_backward, kept_apart, uncounted
from canary.training.collectors.distributed import world_size
from canary.training.exact.parameters import innermost
from canary.training.facts.followed import (
    NAMES,
    Followed,
    Places,
    Sample,
    named_of,
    same,
    short,
)

TOTALS = {"CosineAnnealingLR": "T_max", "OneCycleLR": "total_steps", "PolynomialLR": "total_iters"}
"""The attribute that holds the length, by the scheduler's class."""
TOTAL = "num_training_steps"
"""The argument of transformers' schedules that holds it."""


class Schedules:
    """All schedulers that step; those that step only as part of another are counted alone."""

    def __init__(self) -> None:
        self._found: dict[int, tuple[LRScheduler, Schedule]] = {}
        self.updates = 0
        """Those that have ended: the steps that follow belong to the last one."""

    def step_begins(self, scheduler: LRScheduler) -> None:
        """A scheduler steps."""
        # The first step is part of its construction.
        if not self.updates or not getattr(scheduler, "_step_count", 0):
            return
        known = self._found.get(id(scheduler))
        if known is None:
            described: Schedule = {"class": type(scheduler).__name__[:80], "steps": []}
            described["begun_at"] = int(scheduler.last_epoch)
            total = length_of(scheduler)
            if total is not None:
                described["length"] = total
            known = self._found[id(scheduler)] = (scheduler, described)
        steps = known[1]["steps"]
        steps += [0] * (self.updates - len(steps))
        steps[-1] += 1

    def described(self) -> list[Schedule]:
        """Return the schedulers that stepped, and forget them."""
        found = [described for _, described in self._found.values()]
        self._found = {}
        return found


def length_of(scheduler: LRScheduler) -> int | None:
    """Return the steps after which a schedule is over, if it says so."""
    total: Any = getattr(scheduler, TOTALS.get(type(scheduler).__name__, ""), None)
    for rate in getattr(scheduler, "lr_lambdas", ()):
        if isinstance(rate, functools.partial):
            total = rate.keywords.get(TOTAL)
        elif TOTAL in getattr(getattr(rate, "__code__", None), "co_freevars", ()):
            cell = rate.__closure__[rate.__code__.co_freevars.index(TOTAL)]
            total = cell.cell_contents
    return int(total) if isinstance(total, int) and not isinstance(total, bool) else None


MOST_OPTIMIZERS = 4
FAR_BELOW = 0.01
"""A clip's limit below this share of a gradient scaler's factor was not multiplied by it."""
MOST_MISSING = 512
"""Tensors outside of all optimizers that are followed."""
BATCH_NORMS = nn.modules.batchnorm._BatchNorm
DROPOUTS = nn.modules.dropout._DropoutNd


class UpdateWatcher:
    """Follows the optimizers of one training, and counts its clips. With several ranks it follows
    none: parameters may be shards there, and wrappers step in place of the optimizer."""

    subject = "updates of the optimizer"

    def __init__(self, trained: Any) -> None:
        self._trained = trained
        self._wrapping = Wrapping()
        self._handles: list[Any] = []
        self._followed: list[Followed] = []
        self._schedules = Schedules()
        self._error: Exception | None = None
        self._off = False
        self._clips: ClipFacts = {"clips": 0, "empty": 0, "scaled": 0}
        self._scaler: GradScaler | None = None
        """What multiplied a loss since gradients were last divided."""
        self._loader: int | None = None
        """The length of the loader that yielded last."""
        self._facts: UpdateFacts = {"modes": []}
        self._frozen: set[int] = set()
        """Ids of the parameters that were frozen before the first update."""
        self._missing: dict[str, tuple[torch.Tensor, Sample]] = {}
        """Trainable tensors with a gradient that no optimizer holds, and their values."""
        self._hidden: dict[str, nn.Parameter] = {}
        """Parameters of layers in a plain list of the model: `parameters()` lacks them."""

    @property
    def _model(self) -> Any:
        return getattr(self._trained, "model", None)

    def begin(self) -> None:
        """Hook backward, clipping, schedulers and the optimizers that exist."""
        wrap = self._wrapping.wrap
        self._wrapping.wrap_backward(self._around_backward)
        # What `clip_grad_norm_` calls, since scripts import that name before the look begins.
        wrap(torch.nn.utils.clip_grad, "_clip_grads_with_norm_", self._around_clip)
        wrap(torch.nn.utils, "clip_grads_with_norm_", self._around_clip)
        wrap(torch.nn.utils, "clip_grad_value_", self._around_clip)
        wrap(GradScaler, "scale", self._around_scale)
        wrap(GradScaler, "unscale_", self._around_unscale)
        wrap(LRScheduler, "step", self._around_schedule)
        wrap(_BaseDataLoaderIter, "__next__", self._around_fetch)
        if isinstance(self._model, nn.Module):
            values = self._model.parameters()
            self._frozen = {id(value) for value in values if not value.requires_grad}
        self._follow_new()

    def end(self) -> None:
        """Restore all that was hooked."""
        self._off = True
        self._wrapping.undo()
        self._scaler = None
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def tell(self, facts: Facts, exact: Exact) -> None:
        """Add the clips, and what was seen of updates; nothing if there were none."""
        if self._clips["clips"]:
            facts["clips"] = self._clips
        followed, self._followed = self._followed, []
        if self._error is not None:
            raise self._error
        if not any(one.facts["updates"] for one in followed):
            return
        self._facts["holding"] = self._holding(followed)
        self._facts["optimizers"] = [one.described() for one in followed]
        self._facts["schedules"] = self._schedules.described()
        if self._loader is not None:
            self._facts["loader_length"] = self._loader
        planned = getattr(getattr(self._trained, "state", None), "max_steps", None)
        if isinstance(planned, int) and planned > 0:
            self._facts["planned_updates"] = planned
        self._missing, self._hidden = {}, {}
        facts["updates"] = self._facts

    def _holding(self, followed: list[Followed]) -> Holding:
        held = set().union(*(one.ids for one in followed))
        model = self._model
        named = list(model.named_parameters()) if isinstance(model, nn.Module) else []
        trainable = [value for _, value in named if value.requires_grad]
        still = [
            (name, value)
            for name, (value, before) in self._missing.items()
            if id(value) not in held and same(before, Places([value]).values())
        ]
        thawed = [name for name, value in still if id(value) in self._frozen]
        parts = {part_of(name) for name, value in named if id(value) in held}
        rested = set().union(*(one.rested for one in followed))
        lost = held.difference(*(one.had_gradient for one in followed), {id(v) for _, v in named})
        return {
            "tensors": len(held),
            "trainable": len(trainable),
            "trainable_held": sum(id(value) in held for value in trainable),
            "missing": len(still),
            "missing_names": [short(name) for name, _ in still],
            "left_out": not lost
            and not any(name in self._hidden for name, _ in still)
            and parts.isdisjoint(part_of(name) for name, _ in still),
            "resting_names": [short(name) for name, value in named if id(value) in rested],
            "thawed": len(thawed),
            "thawed_names": [short(name) for name in thawed[:NAMES]],
        }

    @contextlib.contextmanager
    def _aside(self) -> Iterator[None]:
        """Look at the training without being a part of it; an error ends this watcher alone."""
        with kept_apart(self._fails), uncounted(), torch.no_grad():
            yield

    def _fails(self, why: str) -> None:
        self._error = self._error or RuntimeError(why)
        self._off = True

    def _watches(self) -> bool:
        return not self._off and not torch.compiler.is_compiling()

    def _follow_new(self) -> None:
        """Follow the optimizers of the training that are not followed yet."""
        if world_size() > 1:
            return
        given = getattr(self._trained, "optimizers", None) or ()
        for one in (*given, getattr(self._trained, "optimizer", None)):
            inner = one if isinstance(one, Optimizer) else getattr(one, "optimizer", None)
            if not isinstance(inner, Optimizer) or len(self._followed) >= MOST_OPTIMIZERS:
                continue
            inner = innermost(inner)
            if any(known.optimizer is inner for known in self._followed):
                continue
            if hasattr(vars(inner).get("step"), "_torchdynamo_orig_callable"):
                raise RuntimeError("torch.compile runs the optimizer's step")
            followed = Followed(inner, named_of(self._model))
            self._followed.append(followed)
            self._handles += [
                inner.register_step_pre_hook(self._calling(followed, self._update_begins)),
                inner.register_step_post_hook(self._calling(followed, self._update_ended)),
            ]

    def _calling(
        self, followed: Followed, call: Callable[[Followed, bool], None]
    ) -> Callable[..., None]:
        def hook(_: Any, args: Any, kwargs: Any) -> None:
            if self._watches():
                with self._aside():
                    closure = [*args[1:], kwargs.get("closure")]
                    call(followed, any(map(callable, closure)))

        return hook

    @contextlib.contextmanager
    def _around_backward(self, _: Any) -> Iterator[None]:
        if self._watches():
            with self._aside():
                self._follow_new()
                for one in self._followed:
                    one.backward_begins()
        yield
        if self._watches():
            with self._aside():
                for one in self._followed:
                    one.backward_ended()

    def _around_clip(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            given = inspect.signature(original).bind(*args, **kwargs)
        except (TypeError, ValueError):
            return original(*args, **kwargs)  # torch refuses it, or it is no torch's
        if isinstance(given.arguments["parameters"], Iterator):
            given.arguments["parameters"] = [*given.arguments["parameters"]]  # it is read once
        if self._watches():
            with self._aside():
                self._clipped(**given.arguments)
        return original(*given.args, **given.kwargs)

    def _clipped(
        self,
        parameters: Any,
        max_norm: Any = None,
        total_norm: Any = None,
        clip_value: Any = None,
        **_: Any,
    ) -> None:
        """Count one clip; it has the names of torch's arguments."""
        several = [parameters] if isinstance(parameters, torch.Tensor) else [*parameters]
        limit = float(clip_value if max_norm is None else max_norm)
        if limit == float("inf"):
            return  # only to measure the norm
        self._clips["clips"] += 1
        self._clips["empty"] += all(value.grad is None for value in several)
        if self._scaler is not None and limit < FAR_BELOW * float(self._scaler.get_scale()):
            self._clips["scaled"] += 1
        acted = total_norm is not None and float(total_norm) > limit
        for one in self._followed:
            if one.ids & {id(value) for value in several}:
                one.clipped(acted)

    def _around_scale(self, original: Any, scaler: GradScaler, *args: Any, **kwargs: Any) -> Any:
        self._scaler = scaler if scaler.is_enabled() else None
        return original(scaler, *args, **kwargs)

    def _around_unscale(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        self._scaler = None
        return original(*args, **kwargs)

    def _around_schedule(self, original: Any, scheduler: Any, *args: Any, **kwargs: Any) -> Any:
        if self._watches():
            with self._aside():
                self._schedules.step_begins(scheduler)
        return original(scheduler, *args, **kwargs)

    def _around_fetch(self, original: Any, iterator: Any) -> Any:
        if self._watches() and torch.is_grad_enabled():
            with contextlib.suppress(TypeError, NotImplementedError):
                self._loader = len(iterator)
        return original(iterator)

    def _update_begins(self, followed: Followed, closure: bool) -> None:
        others = [one for one in self._followed if one is not followed]
        shared = any(followed.ids & one.ids for one in others)
        followed.update_begins(shared, in_backward=in_backward(), closure=closure)
        model = self._model
        if followed is self._followed[0] and isinstance(model, nn.Module):
            if not self._facts["modes"]:
                self._hidden = dict(hidden_in(model))
            self._note_mode(model)
            held = set().union(*(one.ids for one in self._followed))
            for name, value in (*model.named_parameters(), *self._hidden.items()):
                outside = id(value) not in held and value.grad is not None and value.requires_grad
                if outside and name not in self._missing and len(self._missing) < MOST_MISSING:
                    place = Places([value])
                    if place.gradients().any():
                        self._missing[name] = (value, place.values())

    def _note_mode(self, model: nn.Module) -> None:
        modules = [one for one in model.modules() if one is not model] or [model]
        trains = any(one.training for one in modules)
        if not self._facts["modes"]:
            noisy = [one for one in modules if draws(one) or isinstance(one, BATCH_NORMS)]
            self._facts["noisy_modules"] = sum(one.training or not trains for one in noisy)
        self._facts["modes"].append(trains)

    def _update_ended(self, followed: Followed, _: bool) -> None:
        followed.update_ended()
        if followed is self._followed[0]:
            self._schedules.updates += 1


def part_of(name: str) -> str:
    """Return the part of a model that a parameter is in: a layer of a list, or else a module."""
    found = re.match(r"(.*?\.)?\d+(?=\.)", name)
    return found[0] if found else name.rpartition(".")[0]


def hidden_in(model: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """Yield the parameters of modules in a list, tuple or dict of a module, which its
    `parameters()` lacks."""
    known = {id(value) for value in model.parameters()}
    for name, module in model.named_modules():
        for attribute, value in vars(module).items():
            if attribute.startswith("_") or not isinstance(value, list | tuple | dict):
                continue
            several = value.items() if isinstance(value, dict) else enumerate(value)
            for key, one in several:
                inner = one.named_parameters() if isinstance(one, nn.Module) else ()
                path = ".".join(filter(None, (name, attribute, str(key))))
                yield from ((f"{path}.{own}", p) for own, p in inner if id(p) not in known)


def draws(module: nn.Module) -> bool:
    """Whether a module draws at random in training mode."""
    if isinstance(module, DROPOUTS):
        return module.p > 0
    rates = (getattr(module, name, 0) for name in ("dropout", "attention_dropout", "dropout_p"))
    return any(isinstance(rate, float) and rate > 0 for rate in rates)
