"""Changes each model of a process at its first call, and sees whether a training is random."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from canary.training.relations.calls import autocast_now
from canary.training.relations.rounding import epsilon, perturb


def without_dropout(model: Any) -> None:
    """Switch off all dropout: modules of torch, and rates that modules keep themselves."""
    for module in model.modules():
        for name, value in vars(module).items():
            rate = name == "p" if type(module).__name__.startswith("Dropout") else "drop" in name
            if rate and isinstance(value, float):
                setattr(module, name, 0.0)


class FirstCalls:
    """Changes each model of this process at its first call.

    `no_dropout`: switch dropout off. `perturbed`: move the parameters by one rounding, with this
    seed. So a reference model moves as the policy does.
    """

    def __init__(self, *, no_dropout: bool, perturbed: int | None) -> None:
        self._no_dropout = no_dropout
        self._perturbed = perturbed
        self._known: weakref.WeakSet[nn.Module] = weakref.WeakSet()
        self._moved: set[int] = set()
        self.is_off = False
        """Whether a Trainer takes over: its models are changed when it begins."""

    def called(self, model: nn.Module) -> None:
        """A model is called from outside of other modules."""
        if self.is_off or model in self._known:
            return
        self._known.add(model)
        if self._no_dropout:
            without_dropout(model)
        parameters = {id(value) for value in model.parameters()}
        # A part of a model may be called alone, after the whole or before.
        if self._perturbed is None or not parameters or parameters & self._moved:
            return
        self._moved |= parameters
        perturb(model, epsilon(model, autocast_now()), self._perturbed)


class TrainingCalls:
    """Follows the outermost calls of models, and what is drawn at random in them."""

    def __init__(
        self, begins: Callable[[nn.Module], None], trained_on: Callable[[list[int]], None]
    ) -> None:
        """`begins` gets each model that is called. `trained_on` gets the widths of the integer
        tensors of two dimensions that enter a call with gradients."""
        self._begins, self._trained_on = begins, trained_on
        self._depth = 0
        self._before: torch.Tensor | None = None
        self.is_random = False
        """Whether random numbers were drawn between a forward pass and the end of its backward."""
        self.samples = False
        """Whether tokens were drawn from probabilities."""

    def begin(self) -> None:
        """Hook all models of this process, `backward` and `multinomial`."""
        register_module_forward_pre_hook(self._enters)
        register_module_forward_hook(self._leaves, with_kwargs=True, always_call=True)
        backward, draw = torch.autograd.backward, torch.multinomial

        @functools.wraps(backward)
        def backwards(*args: Any, **kwargs: Any) -> None:
            backward(*args, **kwargs)
            before, self._before = self._before, None
            if before is not None and not torch.equal(before, torch.get_rng_state()):
                self.is_random = True

        @functools.wraps(draw)
        def draws(*args: Any, **kwargs: Any) -> Any:
            given = args[0] if args else kwargs.get("input")
            # A sampler of rows has the weights of all rows in one dimension.
            self.samples |= getattr(given, "ndim", 0) > 1
            return draw(*args, **kwargs)

        torch.autograd.backward = backwards
        torch.multinomial = draws
        torch.Tensor.multinomial = draws

    def _enters(self, module: nn.Module, args: Any) -> None:
        self._depth += 1
        if self._depth > 1:
            return
        self._begins(module)
        if torch.is_grad_enabled() and self._before is None:
            self._before = torch.get_rng_state()

    def _leaves(self, module: nn.Module, args: Any, kwargs: Any, output: Any = None) -> None:
        # After an error, torch leaves out an argument.
        self._depth = max(0, self._depth - 1)
        if not self._depth and torch.is_grad_enabled():
            self._trained_on([one.shape[1] for one in _tokens([*args, *dict(kwargs).values()])])


def _tokens(given: list[Any]) -> list[torch.Tensor]:
    inner = [value for one in given if isinstance(one, Mapping) for value in one.values()]
    return [
        one
        for one in (*given, *inner)
        if isinstance(one, torch.Tensor) and one.dim() == 2 and not one.is_floating_point()
    ]
