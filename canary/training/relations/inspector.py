"""Follows the first update of a training, whatever its loop, and asks the relations about it.

Hooks of torch see every call of a model, the gradient of its logits and every step of an optimizer.
So trainers and plain loops are looked at in the same way.
"""

from __future__ import annotations

import contextlib
import functools
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.optim import optimizer as torch_optimizer

from canary.protocol.failure import one_line
from canary.relations.relation import Outcome
from canary.training.collectors.uncounted import uncounted
from canary.training.collectors.wrapping import Wrapping
from canary.training.relations.accumulated import Accumulated
from canary.training.relations.adapters import adapters_of
from canary.training.relations.asking import Answers, several_ranks
from canary.training.relations.calls import (
    KeptCall,
    are_logits,
    autocast_now,
    gets_ids,
    is_loss,
    kept_call,
    rows_in,
    said_of,
    scores_tokens,
    undisturbed,
    weigh,
)
from canary.training.relations.drawn import DrawnRows
from canary.training.relations.looking import TrainingLook
from canary.training.relations.other_policy import RELATIONS as OF_OTHERS
from canary.training.relations.other_policy import OtherPolicy, calls_of_other
from canary.training.relations.references import Updates
from canary.training.relations.rows import pad_of
from canary.training.relations.tokenizers import LivingTokenizers, special_ids
from canary.training.relations.wrapped import are_log_probs
from canary.training.sampling.watch import RELATIONS as SAMPLING_RELATIONS
from canary.training.sampling.watch import SAMPLING

MOST_CALLS = 64
"""Calls of one update that are kept."""
ASK_WHAT_IS_SAMPLED = ("prompt_labels", "assistant_mask", "swap")


class Inspector:
    """Asks the `wanted` relations of one training."""

    def __init__(
        self, trained: Any, wanted: Sequence[str], files: Mapping[str, str] | None = None
    ) -> None:
        self._trained = trained
        self._answers = Answers(wanted, files or {})
        self.own = self._answers.own
        """The user's own relations."""
        self._depth = 0
        self._autocast: torch.dtype | None = None
        """That of the running call."""
        self._asking = False
        self._calls: list[KeptCall] = []
        self._inner: tuple[nn.Module, Any, Any, Any] | None = None
        """The newest call of a part that gets token ids and gives logits."""
        self._part: tuple[nn.Module, torch.Tensor] | None = None
        """The newest part of a call that may say the logits."""
        self._others: dict[int, tuple[nn.Module, KeptCall]] = {}
        self._optimizers: list[weakref.ref[torch.optim.Optimizer]] = []
        self._look: TrainingLook | None = None
        self._accumulated = Accumulated()
        self._other: OtherPolicy | None = None
        self._drawn = DrawnRows(trained)
        self._tokenizers = LivingTokenizers()
        self._inputs: dict[str, Any] | None = None
        self._wrapping = Wrapping()
        if "swap" in self._answers.wanted:
            self._wrapping.wrap(trained, "compute_loss", self._around_loss)
        self._brought = getattr(trained, "optimizer", None) is not None
        self._training = True
        """The policy's mode in its last call."""
        asks = {*self._answers.wanted} & {*SAMPLING_RELATIONS, *ASK_WHAT_IS_SAMPLED}
        self._sampling = SAMPLING if asks else None
        if self._sampling is not None:
            self._sampling.begin()
            self._sampling.belongs_to(self, trained)
            self._updates = Updates(self._sampling.scored)
            self._updates.begin()
        safely = self._safely
        self._handles = [
            register_module_forward_pre_hook(self._enters),
            register_module_forward_hook(self._leaves, with_kwargs=True, always_call=True),
            torch_optimizer.register_optimizer_step_pre_hook(
                lambda *args: safely(self._update_begins, *args)
            ),
        ]

    def _safely(self, call: Callable[..., Any], *args: Any) -> None:
        """Keep errors of what a user's objects do away from the training."""
        if self._answers.failed:
            return
        try:
            call(*args)
        except Exception as error:  # noqa: BLE001 - a user's model may refuse or return anything
            self._answers.failed = f"the training cannot be looked at: {one_line(error)}"

    def _around_loss(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        """Keep a copy of the first batch: a loss may take entries out of it."""
        inputs = args[1] if len(args) > 1 else kwargs.get("inputs")
        if self._inputs is None and isinstance(inputs, Mapping):
            self._inputs = dict(inputs)
        return original(*args, **kwargs)

    def _enters(self, module: nn.Module, args: Any) -> None:
        if not self._depth and self._accumulated.is_open and torch.is_grad_enabled():
            with uncounted():
                self._accumulated.forward()
        self._depth += 1
        self._autocast = self._autocast or autocast_now()

    def _leaves(self, module: nn.Module, args: Any, kwargs: Any, output: Any = None) -> None:
        # After an error, torch leaves out an argument.
        self._depth = max(0, self._depth - 1)
        if self._depth:
            if not self._asking:
                self._safely(self._part_left, module, args, kwargs, output)
            return
        autocast, self._autocast = self._autocast, None
        if not self._asking:
            with uncounted():
                inner = self._inner
                if inner is not None and output is not None and not gets_ids(args, kwargs):
                    # A wrapper hides the ids, in a dictionary for instance.
                    module, args, kwargs, output = inner
                self._safely(self._called, module, args, kwargs, output, autocast)
            self._part = self._inner = None

    def _part_left(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        """Keep the newest part of a call that may say what the whole model does not."""
        if are_logits(module, output):
            self._part = (module, output)
        if scores_tokens(output) and gets_ids(args, kwargs):
            self._inner = (module, args, kwargs, output)

    def _called(
        self,
        module: nn.Module,
        args: Any,
        kwargs: Any,
        output: Any,
        autocast: torch.dtype | None,
    ) -> None:
        """Keep a call of a whole model; `autocast`: the dtype that it computed in, if it is on."""
        known, head = said_of(output), None
        if known is None and is_loss(output) and self._part is not None:
            head, logits = self._part
            known = ("logits", logits)
        if known is None:
            return
        says, said = known
        vocabulary = 0
        if self._part is not None and says == "logits" and said.dim() == 2:
            ids = kept_call(module, args, kwargs, says, said).ids
            if are_log_probs(said, self._part[1], ids):
                says, vocabulary = "log_probs", self._part[1].shape[-1]
        trains = torch.is_grad_enabled() and said.requires_grad
        if trains:
            self._training = module.training
            if self._look is not None and self._accumulated.is_open:
                backward = functools.partial(self._backward, module, rows_in(args, kwargs))
                said.register_hook(functools.partial(self._safely, backward))
        only_sampling = self._look is not None and (self._sampling is None or not trains)
        follows = trains and self._follows()
        if (only_sampling and not follows) or len(self._calls) >= MOST_CALLS:
            return
        if not trains and id(module) in self._others:
            return
        call = kept_call(module, args, kwargs, says, said)
        call.head, call.autocast = head, autocast
        if vocabulary:
            call.shape = (*call.shape[:2], vocabulary)
        if follows and self._look is not None:
            self._look.buffered(call)
        if only_sampling:
            return
        if trains:
            self._calls.append(call)
            if call.ids is not None and call.scores_tokens and self._sampling is not None:
                labels = call.arguments.get("labels")
                call.log_probs = self._sampling.scored.own(says, said, call.ids, labels)
                call.adapters = adapters_of(module)
            first = self._look is None
            weighed = functools.partial(_weighed, call, said.detach(), keep=first)
            said.register_hook(functools.partial(self._safely, weighed))
            if first:
                backward = functools.partial(self._backward, module, rows_in(args, kwargs))
                said.register_hook(functools.partial(self._safely, backward))
        else:
            self._others[id(module)] = (module, call)

    def _backward(self, model: nn.Module, rows: Any, gradient: torch.Tensor) -> None:
        if self._accumulated.is_open:
            self._accumulated.backward(model, rows)

    def _follows(self) -> bool:
        """Whether rows of later updates are looked at too."""
        return (
            self._look is not None
            and "neighbour" in self._answers.wanted
            and not self._look.buffer.is_full
        )

    def _update_begins(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if self._asking:
            return
        if all(known() is not optimizer for known in self._optimizers):
            self._optimizers.append(weakref.ref(optimizer))
        trained = [call for call in self._calls if call.trained]
        if self._look is None:
            if not trained:
                return
            self._look = self._looked(trained)
            self._counts(optimizer)
            self._calls = []
            for call in trained:
                self._look.buffered(call)
            self._sampled(trained)
            with self._aside(self._look):
                self._answers.ask("first", self._look)
        elif self._counts(optimizer):
            self._sampled(trained)
            self._calls = []
        elif self._sampling is not None:
            self._others_update(optimizer, self._look, trained)

    def _others_update(
        self, optimizer: torch.optim.Optimizer, look: TrainingLook, trained: list[KeptCall]
    ) -> None:
        """Follow the first of the other policies."""
        if self._other is not None and self._other.optimizer is not optimizer:
            return
        calls = calls_of_other(trained, optimizer, look.model)
        if not calls or self._sampling is None or several_ranks():
            return
        begins = self._other is None
        if self._other is None:
            self._other = OtherPolicy(
                self._looked(calls, alone=True), self._updates.of_other(), optimizer
            )
        self._calls = []
        with self._aside(self._other.look):
            self._other.updates.begins(self._other.look, calls, self._sampling)
            if begins:
                self._answers.ask("first", self._other.look, OF_OTHERS)

    def _sampled(self, calls: Sequence[KeptCall]) -> None:
        """Compare what was sampled for this update with what it trains on."""
        look, sampling = self._look, self._sampling
        assert look is not None
        if sampling is None or sampling.owner is not self or several_ranks():
            return
        with self._aside(look), sampling.safely():
            sampling.update_begins(look.updates, look.model, calls, _temperature(look))
        with self._aside(look):
            self._updates.begins(look, calls, sampling)
        look.others = [one for one in look.others if id(one[0]) not in sampling.samplers]

    @contextlib.contextmanager
    def _aside(self, look: TrainingLook) -> Iterator[None]:
        """Ask beside the training: what is called inside is no part of it."""
        self._asking = True
        pause = contextlib.nullcontext() if self._sampling is None else self._sampling.aside()
        try:
            with pause, uncounted(), undisturbed(look.model):
                yield
        finally:
            self._asking = False

    def _counts(self, optimizer: torch.optim.Optimizer) -> bool:
        """Count an update of the policy's first optimizer; return whether it is one."""
        look = self._look
        if look is None or (look.optimizers and look.optimizers[0] is not optimizer):
            return False
        look.updates += 1
        with uncounted():
            self._accumulated.update_begins()
        look.lost = self._accumulated.lost
        look.modes.append(self._training)
        for name, value in look.model.named_parameters():
            if value.grad is not None:
                look.first_gradients.setdefault(name, look.updates)
        look.rates.append(float(optimizer.param_groups[0]["lr"]))
        return True

    def _looked(self, calls: list[KeptCall], *, alone: bool = False) -> TrainingLook:
        """Begin to look at a policy. `alone`: without what was called for another one."""
        model = calls[0].module
        trainer = self._trained if hasattr(self._trained, "compute_loss") else None
        tokenizer = getattr(trainer, "processing_class", None)
        pad, ends = special_ids(tokenizer, model)
        return TrainingLook(
            model=model,
            calls=calls,
            optimizers=self._optimizers_of(model),
            trainer=trainer,
            others=[one for one in self._others.values() if one[0] is not model and not alone],
            pad_id=pad_of(calls) if pad is None else pad,
            eos_ids=ends,
            drawn=self._drawn,
            tokenizers=self._tokenizers,
            brought=self._brought,
            changed=self._accumulated.changed,
            inputs=self._inputs,
        )

    def _optimizers_of(self, model: nn.Module) -> list[torch.optim.Optimizer]:
        """Return the optimizers seen so far that have parameters of the model."""
        own = {id(value) for value in model.parameters()}
        alive = [one for known in self._optimizers if (one := known()) is not None]
        return [
            one
            for one in alive
            if any(id(value) in own for group in one.param_groups for value in group["params"])
        ]

    def end(self) -> list[Outcome]:
        """Ask the relations of the end, and return all answers."""
        for handle in self._handles:
            handle.remove()
        self._drawn.end()
        self._wrapping.undo()
        self._safely(self._ask_at_end)
        if self._sampling is not None:
            self._updates.end()
            self._sampling.end()
        return self._answers.all()

    def _ask_at_end(self) -> None:
        if self._look is not None:
            self._look.optimizers = self._optimizers_of(self._look.model)
            with self._aside(self._look):
                self._answers.ask("last", self._look)
        if self._other is not None:
            self._other.updates.end()
            with self._aside(self._other.look):
                self._answers.ask("last", self._other.look, OF_OTHERS)


def _weighed(call: KeptCall, said: torch.Tensor, gradient: torch.Tensor, *, keep: bool) -> None:
    with uncounted():
        weigh(call, said, gradient, keep)


def _temperature(look: TrainingLook) -> float | None:
    """Return the temperature that a trainer says."""
    found = getattr(look.trainer, "temperature", None)
    return float(found) if isinstance(found, int | float) else None
