"""Follows the first updates of a training, whatever its loop, and keeps what the questions ask for.

Hooks of torch see every call of a model, the gradient of its logits and every step of an optimizer.
So trainers and plain loops are looked at in the same way. Nothing of the training changes.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.optim import optimizer as torch_optimizer
from torch.utils.hooks import RemovableHandle

from canary.protocol.failure import one_line, struck
from canary.record.exact import Asked, Exact
from canary.record.facts import Facts
from canary.training.asking import again, conversing, reading
from canary.training.asking.again import undisturbed
from canary.training.asking.calls import (
    Call,
    autocast_now,
    call_of,
    read_gradient,
    read_said,
    said_of,
    says_of,
)
from canary.training.asking.look import CannotAsk, Look, looked, not_asked
from canary.training.asking.updates import (
    ScoredRows,
    Update,
    adapters_of,
    names_on_stack,
    trained_rows,
)
from canary.training.collectors.aside import (
    in_backward,
    is_compiled,
    kept_apart,
    kept_random,
    living,
    uncounted,
)
from canary.training.collectors.calls import own_calls
from canary.training.collectors.distributed import world_size
from canary.training.exact.fingerprints import text_tokenizer

UPDATES = 3
"""That are followed."""
MOST_CALLS = 64
"""Calls of one update that are kept."""
MOST_EARLY = 512
"""Calls before the look that are read."""
UNSEEN = "no model was called that gets token ids and returns their logits"
COMPILED = "torch.compile: hooks would make it compile again"
SEVERAL_RANKS = "the training has several ranks"
READ = reading.QUESTIONS | conversing.QUESTIONS
"""What the first updates answer by themselves."""


class Asking:
    """Watches the first updates of one look; see `canary.training.facts.watching.Watcher`."""

    subject = "first updates"

    def __init__(self, trained: Any, *, again: bool) -> None:
        """`again`: call the model again about rows of the first update."""
        self._trained, self._again = trained, again
        self._answers: dict[str, Asked] = {}
        self._why = ""
        """Why nothing more is seen; empty as long as all is well."""
        self._handles: list[Any] = []
        self._depth = self._count = 0
        """Of the running calls, and of all that were kept."""
        self._autocast: torch.dtype | None = None
        """That of the running call."""
        self._busy = False
        """Whether the canary itself calls models now."""
        self._inner: tuple[nn.Module, Any, Any, Any] | None = None
        """The newest call of a part that gets token ids and gives logits."""
        self._modules: set[int] = set()
        """Models that are known not to be compiled."""
        self._calls: list[Call] = []
        self._optimizer: weakref.ref[torch.optim.Optimizer] | None = None
        """The policy's first one."""
        self._look: Look | None = None
        self._scored = ScoredRows()
        self._tokenizer: Any = None

    def begin(self) -> None:
        """Hook calls of models and steps of optimizers."""
        STEPS.install(stays=self is EARLY)
        if world_size() > 1:
            self._why = SEVERAL_RANKS
        elif self._compiles():
            self._why = COMPILED
        if self._why:
            return
        if self is not EARLY:
            EARLY.end()
            self._scored, EARLY._scored = EARLY._scored, ScoredRows()
            self._tokenizer = text_tokenizer(self._trained)
        self._handles = [
            register_module_forward_pre_hook(self._enters),
            register_module_forward_hook(self._leaves, with_kwargs=True, always_call=True),
        ]
        STEPS.heard_by = self

    def _compiles(self) -> bool:
        """Whether a module is compiled: of a trainer, or of the process, whose walk takes long."""
        if getattr(getattr(self._trained, "args", None), "torch_compile", False):
            return True
        if hasattr(self._trained, "compute_loss"):
            values = vars(self._trained).values()
            held = (one for one in values if issubclass(type(one), nn.Module))
            modules = [part for one in held for part in one.modules()]
        else:
            modules = [one for one in living(nn.Module) if "_parameters" in vars(one)]
        return any(map(is_compiled, modules))

    def end(self) -> None:
        """Remove all hooks."""
        for handle in self._handles:
            handle.remove()
        self._handles = []
        if STEPS.heard_by is self:
            STEPS.heard_by = None

    def tensors(self) -> list[torch.Tensor]:
        """Return all tensors that are kept."""
        kept = [value for one in self._scored.calls for value in one.rows.values()]
        for one in [*self._calls, *(self._look.calls if self._look else ())]:
            kept += [*one.arguments.values(), *vars(one).values(), *(one.seen or ())]
        return [*filter(torch.is_tensor, kept)]

    def _gives_up(self, why: str) -> None:
        self._why = self._why or why
        self.end()

    def _safely(self, call: Callable[..., Any], *args: Any) -> None:
        """Keep errors of what a user's objects do away from the training."""
        if self._busy or not self._handles:
            return
        with kept_apart(self._fails), uncounted(), torch.no_grad():
            call(*args)

    def _fails(self, why: str) -> None:
        self._gives_up(f"the training cannot be looked at: {why}")

    # Calls of models.

    def _enters(self, module: nn.Module, args: Any) -> None:
        if self._busy or in_backward():
            return
        if not self._depth:
            self._safely(self._begins, module)
        self._depth += 1
        self._autocast = self._autocast or autocast_now()

    def _begins(self, module: nn.Module) -> None:
        if id(module) not in self._modules and any(map(is_compiled, module.modules())):
            self._gives_up(COMPILED)
        self._modules.add(id(module))

    def _leaves(self, module: nn.Module, args: Any, kwargs: Any, output: Any = None) -> None:
        if self._busy or in_backward():
            return
        self._depth = max(0, self._depth - 1)
        # After an error, torch leaves out an argument.
        says = "" if kwargs is None else says_of(args, kwargs, output)
        if self._depth:
            if says == "tokens" and not isinstance(module, nn.Embedding):
                self._inner = (module, args, kwargs, output)
            return
        autocast, self._autocast = self._autocast, None
        call, self._inner = self._inner, None
        if call is None or output is None or says:
            call = (module, args, kwargs, output)
        # Else a wrapper hides the ids, in a dictionary for instance, or says something else.
        self._safely(self._called, *call, autocast, torch.is_grad_enabled())

    def _called(
        self, module: nn.Module, args: Any, kwargs: Any, output: Any, autocast: Any, grad: bool
    ) -> None:
        """Keep a call of a whole model."""
        updates, known = self._updates, said_of(output)
        if known is None or updates >= UPDATES:
            return
        is_fused, said = known
        trains = grad and said.requires_grad
        whole = trains and self._again and not updates
        call = call_of(module, args, kwargs, is_fused, said, whole=whole)
        if call is None or len(self._calls) >= MOST_CALLS or (said.shape[1] < 2 and not trains):
            return
        call.autocast, call.adapters = autocast, adapters_of(module)
        temperature = getattr(self._trained, "temperature", None)
        call.temperature = temperature if isinstance(temperature, float) and temperature else 1.0
        self._count += 1
        if self is EARLY and (trains or self._count > MOST_EARLY):
            self.end()
            return
        read_said(call, said)
        if trains:
            self._calls.append(call)
            # The loop may keep its loss, and with it the hook.
            _hook(said, functools.partial(self._safely, _read, weakref.ref(call)))
        else:
            self._scored.called(call, updates)

    # Updates.

    @property
    def _updates(self) -> int:
        return 0 if self._look is None else len(self._look.updates)

    def step_begins(self, optimizer: torch.optim.Optimizer) -> None:
        """A step of any optimizer begins."""
        self._safely(self._update_begins, optimizer)

    def _update_begins(self, optimizer: torch.optim.Optimizer) -> None:
        if world_size() > 1:
            self._gives_up(SEVERAL_RANKS)
        if self._why or self._updates >= UPDATES:
            return
        if self._optimizer is not None and self._optimizer() is not optimizer:
            return
        own = {id(value) for group in optimizer.param_groups for value in group["params"]}
        calls = [
            one
            for one in self._calls
            if one.trained and any(id(value) in own for value in one.module.parameters())
        ]
        if self._look is None and not calls:
            return
        self._calls, self._optimizer = [], weakref.ref(optimizer)
        self._look = look = self._look or looked(self._trained, calls, self._tokenizer)
        for call in calls:
            if call.module is look.model:
                look.buffer.add(call.ids.tolist(), look.spans(call))
        adapters = calls[0].adapters if calls else ()
        scored = self._scored.tell(look.model, adapters, self._updates)
        rows = [trained_rows(one, scored) for one in calls if one.scores_tokens]
        known = [one for some in rows for one in some] if all(rows) else []
        look.updates.append(Update(self._updates + 1, known, names_on_stack()))
        seen = (one for row in known for one in scored.get(row.key, ()))
        look.references += [one for one in seen if one.is_reference]
        if self._again and self._updates == 1:
            self._ask_again(look)
        if self._updates >= UPDATES:
            self.end()

    def _ask_again(self, look: Look) -> None:
        self._busy = True
        try:
            for name, ask in again.QUESTIONS.items():
                with undisturbed(look.model):
                    self._answers[name] = _asked(ask, look)
        finally:
            self._busy = False

    def tell(self, facts: Facts, exact: Exact) -> None:
        """Answer the questions of the look that has ended."""
        look, self._look = self._look, None
        if look is None or self._why:
            facts.setdefault("unseen", {})[self.subject] = self._why or UNSEEN
        if look is not None:
            look.losses = exact.get("trajectory", {}).get("losses", [])
            with own_calls(), uncounted(), kept_random(), torch.no_grad():
                for name, ask in READ.items():
                    self._answers[name] = _asked(ask, look)
        if self._answers:
            exact["asked"] = self._answers
        self._calls, self._scored = [], ScoredRows()
        STEPS.remove()


class Steps:
    """One hook of all optimizers' steps. It stays in a process with a plain loop, whose look may
    begin or end within a step: torch fails if its hooks change while it goes through them."""

    def __init__(self) -> None:
        self.heard_by: Asking | None = None
        self._handle: RemovableHandle | None = None
        self._stays = False

    def install(self, *, stays: bool) -> None:
        """Hook steps; outside of a step."""
        self._stays = self._stays or stays
        if self._handle is None:
            self._handle = torch_optimizer.register_optimizer_step_pre_hook(self._begins)

    def remove(self) -> None:
        """Remove the hook, unless it stays; outside of a step."""
        if self._handle is not None and not self._stays:
            self._handle.remove()
            self._handle = None

    def _begins(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if self.heard_by is not None:
            self.heard_by.step_begins(optimizer)


STEPS = Steps()
EARLY = Asking(None, again=False)
"""Keeps what models say without gradients before a loop's look begins, with its first update: an
old policy and a reference have scored the rows of several updates by then."""


def _asked(ask: Callable[[Look], Asked], look: Look) -> Asked:
    try:
        return ask(look)
    except CannotAsk as why:
        return not_asked(str(why))
    except (Exception, SystemExit) as error:
        # A user's code may refuse anything.
        if struck(error):
            raise
        if not look.call.is_language_model:
            return not_asked("only for language models")
        return not_asked(f"the test failed: {one_line(error)}")


def _hook(said: torch.Tensor, read: Callable[[torch.Tensor], None]) -> None:
    """Read the gradient of a tensor where the graph made it: a hook of the tensor would be saved
    with it."""
    place, node = said.output_nr, said.grad_fn
    if node is None:
        said.register_hook(read)
    else:
        # Of a node with several outputs, those that no loss reads have none.
        node.register_prehook(lambda found: None if found[place] is None else read(found[place]))


def _read(call: weakref.ref[Call], gradient: torch.Tensor) -> None:
    kept = call()
    if kept is not None:
        read_gradient(kept, gradient)
