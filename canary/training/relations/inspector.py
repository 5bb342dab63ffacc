"""Follows the first update of a training, whatever its loop, and asks the relations about it.

Hooks of torch see every call of a model, the gradient of its logits and every step of an optimizer.
So trainers and plain loops are looked at in the same way.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any, Literal

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.optim import optimizer as torch_optimizer

from canary.protocol.failure import one_line
from canary.relations import MODULES
from canary.relations.relation import CannotAsk, Outcome, outcome
from canary.training.collectors.uncounted import uncounted
from canary.training.relations.calls import (
    KeptCall,
    bound,
    said_of,
    shape_of,
    undisturbed,
    weigh,
)
from canary.training.relations.looking import TrainingLook
from canary.training.relations.own import OwnRelations, checked_outcome

MOST_CALLS = 64
"""Calls of one update that are kept."""
SEVERAL_RANKS = "it is asked with one rank only"
UNSEEN = "no call of a model was seen whose loss trained it"


class Inspector:
    """Asks the `wanted` relations of one training."""

    def __init__(
        self, trained: Any, wanted: Sequence[str], files: Mapping[str, str] | None = None
    ) -> None:
        self._trained = trained
        self.own = OwnRelations(files or {})
        """The user's own relations."""
        self._modules = MODULES | self.own.modules
        self._wanted = [
            name
            for name in wanted
            if name in self._modules and self._modules[name].RELATION.moment is not None
        ]
        self._found: dict[str, Outcome] = {}
        self._depth = 0
        self._asking = False
        self._calls: list[KeptCall] = []
        self._others: dict[int, tuple[nn.Module, KeptCall]] = {}
        self._optimizers: list[weakref.ref[torch.optim.Optimizer]] = []
        self._look: TrainingLook | None = None
        self._training = True
        """The policy's mode in its last call."""
        self._handles = [
            register_module_forward_pre_hook(self._enters),
            register_module_forward_hook(self._leaves, with_kwargs=True, always_call=True),
            torch_optimizer.register_optimizer_step_pre_hook(self._update_begins),
        ]

    def _enters(self, module: nn.Module, args: Any) -> None:
        self._depth += 1

    def _leaves(self, module: nn.Module, args: Any, kwargs: Any, output: Any = None) -> None:
        # After an error, torch leaves out an argument.
        self._depth = max(0, self._depth - 1)
        if self._depth or self._asking:
            return
        with uncounted():
            self._called(module, args, kwargs, output)

    def _called(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        """Keep a call of a whole model."""
        known = said_of(output)
        if known is None:
            return
        says, said = known
        trains = torch.is_grad_enabled() and said.requires_grad
        if trains:
            self._training = module.training
        if self._look is not None or len(self._calls) >= MOST_CALLS:
            return
        if not trains and id(module) in self._others:
            return
        shape = shape_of(module, says, said)
        call = KeptCall(module, bound(module, args, kwargs), shape, module.training, says)
        if trains:
            self._calls.append(call)
            said.register_hook(functools.partial(_weighed, call, said.detach()))
        else:
            self._others[id(module)] = (module, call)

    def _update_begins(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if self._asking:
            return
        if all(known() is not optimizer for known in self._optimizers):
            self._optimizers.append(weakref.ref(optimizer))
        if self._look is None:
            trained = [call for call in self._calls if call.trained]
            if not trained:
                return
            self._look = self._looked(trained)
            self._counts(optimizer)
            self._ask("first")
        else:
            self._counts(optimizer)

    def _counts(self, optimizer: torch.optim.Optimizer) -> None:
        """Count an update of the policy's first optimizer."""
        look = self._look
        if look is None or (look.optimizers and look.optimizers[0] is not optimizer):
            return
        look.updates += 1
        look.modes.append(self._training)

    def _looked(self, calls: list[KeptCall]) -> TrainingLook:
        model = calls[0].module
        trainer = self._trained if hasattr(self._trained, "compute_loss") else None
        tokenizer = getattr(trainer, "processing_class", None)
        config = getattr(model, "config", None)
        generation = getattr(model, "generation_config", None)
        pads = (getattr(one, "pad_token_id", None) for one in (tokenizer, config, generation))
        ends: set[int] = set()
        for one in (tokenizer, config, generation):
            found = getattr(one, "eos_token_id", None)
            ends |= {found} if isinstance(found, int) else set(found or ())
        held = {id(value) for value in model.parameters()}
        return TrainingLook(
            model=model,
            calls=calls,
            optimizers=[
                one
                for known in self._optimizers
                if (one := known()) is not None
                and any(id(v) in held for group in one.param_groups for v in group["params"])
            ],
            trainer=trainer,
            others=[one for one in self._others.values() if one[0] is not model],
            pad_id=next((one for one in pads if isinstance(one, int)), None),
            eos_ids=frozenset(ends),
        )

    def _ask(self, moment: Literal["first", "last"]) -> None:
        look = self._look
        assert look is not None
        self._asking = True
        try:
            with uncounted(), undisturbed(look.model):
                for name in self._wanted:
                    if self._modules[name].RELATION.moment == moment:
                        self._found[name] = self._answer(name, look)
                        look.model.eval()
        finally:
            self._asking = False

    def _answer(self, name: str, look: TrainingLook) -> Outcome:
        found = _asked(name, self._modules[name], look)
        return checked_outcome(name, found) if name in self.own.modules else found

    def end(self) -> list[Outcome]:
        """Ask the relations of the end, and return all answers."""
        for handle in self._handles:
            handle.remove()
        if self._look is not None:
            self._ask("last")
        return [
            self._found.get(name) or outcome(name, "undecided", UNSEEN) for name in self._wanted
        ]


def _weighed(call: KeptCall, said: torch.Tensor, gradient: torch.Tensor) -> None:
    with uncounted():
        weigh(call, said, gradient)


def _asked(name: str, module: ModuleType, look: TrainingLook) -> Outcome:
    several = torch.distributed.is_available() and torch.distributed.is_initialized()
    if several and torch.distributed.get_world_size() > 1:
        return outcome(name, "not applicable", SEVERAL_RANKS)
    try:
        found: Outcome = module.ask(look)
    except CannotAsk as why:
        return outcome(name, "not applicable", str(why))
    except Exception as error:  # noqa: BLE001 - a user's model may refuse any other input
        return outcome(name, "undecided", f"the model cannot be asked: {one_line(error)}")
    return found
