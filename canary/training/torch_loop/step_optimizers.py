"""When a step of a plain loop is over: which modules hold its parameters, which optimizers make it
together, which have stepped, and which steps a gradient scaler skipped."""

from __future__ import annotations

import gc
import weakref
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer

from canary.training.collectors.aside import Marked, Wrapping
from canary.training.exact.parameters import innermost, parameters_of

if TYPE_CHECKING:
    from canary.training.torch_loop.watch import LoopWatch

WRAPPED_AS = ("module", "_orig_mod", "_fsdp_wrapped_module")
"""Attributes under which DistributedDataParallel, torch.compile and others keep the module."""


def size_of(optimizer: torch.optim.Optimizer) -> int:
    """Return how many numbers the optimizer holds. In a GAN some ask for no gradient at times."""
    return sum(value.numel() for value in parameters_of(optimizer))


def outermost_modules(parameters: Sequence[torch.Tensor]) -> list[nn.Module]:
    """Return the outermost modules that hold these parameters, in the order of the parameters. It
    looks at every object of the process: some ten milliseconds."""
    place = {id(value): number for number, value in reversed([*enumerate(parameters)])}
    first: dict[int, int] = {}
    modules: dict[int, nn.Module] = {}
    parents: dict[int, list[int]] = defaultdict(list)
    for item in gc.get_objects():
        if not issubclass(type(item), nn.Module) or "_parameters" not in vars(item):
            continue
        modules[id(item)] = item
        for child in item._modules.values():
            parents[id(child)].append(id(item))
        held = [place[id(p)] for p in item._parameters.values() if id(p) in place]
        if held:
            first[id(item)] = min(held)
    found: dict[int, int] = {}
    for holder, number in first.items():
        for top in _tops(holder, parents):
            found[top] = min(number, found.get(top, number))
    return [modules[top] for top in sorted(found, key=lambda top: found[top]) if top in modules]


def _tops(module: int, parents: dict[int, list[int]]) -> set[int]:
    """Return the ancestors that have no parent."""
    seen, rest, tops = {module}, [module], set()
    while rest:
        above = parents.get(one := rest.pop())
        if not above:
            tops.add(one)
        for parent in above or ():
            if parent not in seen:
                seen.add(parent)
                rest.append(parent)
    return tops


def without_wrappers(module: nn.Module) -> nn.Module:
    """Return the user's module inside wrappers, so that names of parameters stay the same."""
    while True:
        inner = [vars(module)["_modules"].get(name) for name in WRAPPED_AS]
        held = next((one for one in inner if one is not None), None)
        others = any(value is not None for value in module._parameters.values())
        if held is None or len(module._modules) > 1 or others:
            return module
        module = held


class Several(nn.Module):
    """Modules that one loop trains, without a module around them."""

    def __init__(self, parts: Sequence[nn.Module]) -> None:
        super().__init__()
        for number, part in enumerate(parts):
            self._modules[f"{type(part).__name__}{number or ''}"] = part
        self.training = any(part.training for part in parts)


def as_one(modules: Sequence[nn.Module]) -> nn.Module | None:
    """Return one module that holds all of them, None without any."""
    if not modules:
        return None
    plain = [without_wrappers(module) for module in modules]
    return plain[0] if len(plain) == 1 else Several(plain)


def children_of(modules: Sequence[nn.Module]) -> Iterator[nn.Module]:
    """Yield the modules right below, through lists and mappings of modules."""
    for module in modules:
        for child in module.children():
            if isinstance(child, nn.ModuleList | nn.ModuleDict):
                yield from children_of([child])
            else:
                yield child


def holds(model: Any, optimizer: torch.optim.Optimizer) -> bool:
    """Return whether the optimizer trains a parameter of this model."""
    held = {id(value) for value in model.parameters()}
    return any(id(value) in held for value in parameters_of(optimizer))


class StepOptimizers:
    """The optimizers of one model. The primary has the largest model of the process. A step ends
    when the primary has stepped, and all that stepped in the step before. One that wraps another is
    the same one, whichever of the two reports a step."""

    def __init__(
        self, optimizers: Sequence[Optimizer], parameters: Iterable[torch.Tensor] | None
    ) -> None:
        """`optimizers`: all of the process, the primary first. `parameters`: those of the model;
        None: those of the primary."""
        primary = optimizers[0]
        held = parameters_of(primary) if parameters is None else parameters
        self._held = {id(value) for value in held}
        self._primary = weakref.ref(innermost(primary))
        self._in_turn: set[int] = set()
        """Optimizers of this model with a loss of their own: they step after the primary's step."""
        self.size = size_of(primary)
        """How many numbers the primary holds."""
        self.own = tuple(one for one in optimizers if self.trains(one))
        self._expected = {id(innermost(one)) for one in self.own}
        self._stepped: set[int] = set()

    def trains(self, optimizer: Optimizer) -> bool:
        """Return whether the optimizer trains the recorded model, for the recorded loss."""
        if id(innermost(optimizer)) in self._in_turn:
            return False
        return any(self.holds(value) for value in parameters_of(optimizer))

    def holds(self, parameter: torch.Tensor) -> bool:
        """Return whether this is a parameter of the model."""
        return id(parameter) in self._held

    def stepped(self, optimizer: Optimizer) -> None:
        """An optimizer has stepped."""
        self._stepped.add(id(innermost(optimizer)))

    def has_stepped(self, optimizer: Optimizer) -> bool:
        """Return whether the optimizer has stepped in this step."""
        return id(innermost(optimizer)) in self._stepped

    @property
    def any_stepped(self) -> bool:
        """Whether the step has begun to end."""
        return bool(self._stepped)

    @property
    def all_stepped(self) -> bool:
        """Whether all have stepped that are expected to."""
        return self._expected <= self._stepped

    @property
    def primary_stepped(self) -> bool:
        """Whether the primary has, or others have after the loop dropped it."""
        primary = self._primary()
        return self.any_stepped and (primary is None or self.has_stepped(primary))

    def expect_these(self) -> None:
        """From now on expect those that have stepped, and no others."""
        self._expected = set(self._stepped)

    def leave_out(self, *, late: bool) -> int:
        """Leave out those that step after another backward than the primary; return how many.
        `late`: those that have not stepped, else those that have."""
        left = self._expected - self._stepped if late else self._stepped
        self._in_turn |= left
        self._expected -= left
        return len(left)

    def step_ended(self) -> None:
        """The next step begins."""
        self._stepped = set()


class Scaling:
    """Knows what `GradScaler.scale` returned since the last step."""

    def __init__(self, watch: LoopWatch) -> None:
        self._watch = watch
        self._scaler: GradScaler | None = None
        self._unscaled = Marked()

    def install(self) -> None:
        """Wrap `GradScaler.scale` and `GradScaler.step`."""
        Wrapping().wrap(GradScaler, "scale", self._around_scale)
        Wrapping().wrap(GradScaler, "step", self._around_step)

    def _around_scale(self, original: Any, scaler: Any, outputs: Any) -> Any:
        found = original(scaler, outputs)
        if found is not outputs:
            self._scaler = scaler
            if isinstance(found, torch.Tensor):
                self._unscaled.note(found, outputs.detach())
        return found

    def _around_step(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        before = self._watch.updates
        found = original(*args, **kwargs)
        if self._watch.updates == before:
            self.step_ended()
            self._watch.step_skipped(args[1] if len(args) > 1 else kwargs["optimizer"])
        return found

    def unscaled(self, loss: torch.Tensor) -> torch.Tensor:
        """Return a loss as it was before a scaler multiplied it."""
        known: torch.Tensor | None = self._unscaled.take(loss)
        if known is not None:
            return known
        if self._scaler is None or self._scaler._scale is None:
            return loss.detach()
        return loss.detach() / self._scaler._scale

    def factor(self, run: Any) -> float:
        """Return what the gradients were multiplied by; only a look asks."""
        if self._scaler is None or not run.look.is_on:
            return 1.0
        return float(self._scaler.get_scale())

    def step_ended(self) -> None:
        """The losses of the next step are others."""
        self._scaler = None
        self._unscaled = Marked()
