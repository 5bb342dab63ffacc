"""Watches one process for a plain torch loop: chooses the loop, and passes on what it does."""

from __future__ import annotations

import contextlib
import functools
import os
import threading
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from canary.protocol.failure import one_line, struck
from canary.protocol.job import JOB, Job
from canary.training.anomaly.hooks import StopTraining
from canary.training.asking.observer import EARLY
from canary.training.attach.process import TURN, follow_parent, say
from canary.training.collectors.aside import Wrapping, in_backward
from canary.training.collectors.named import Named
from canary.training.collectors.taps import Taps
from canary.training.exact.parameters import parameters_of
from canary.training.facts.loaders import LOADERS
from canary.training.launch import claimed_launch, set_up_torch
from canary.training.recorder.collector import around_closure
from canary.training.torch_loop.batches import LoaderBatches, entering
from canary.training.torch_loop.calls import ModuleCalls
from canary.training.torch_loop.recording import Recording, loss_tensors
from canary.training.torch_loop.step_optimizers import (
    Scaling,
    children_of,
    holds,
    outermost_modules,
    size_of,
    without_wrappers,
)


class LoopWatch:
    """The plain loop of this process. The first that begins is recorded, unless one with a larger
    model, a Trainer or a Recorder follows."""

    def __init__(self, job: Job, started: float) -> None:
        self._job, self._started = job, started
        self._optimizers: list[weakref.ref[torch.optim.Optimizer]] = []
        self._run: Recording | None = None
        self._off = TURN.taken
        self._unsettled = False
        self._begun = 0
        self._inside = False
        self._updating: list[int] = []
        self._entered = Named()
        """Arguments of the last call before a loop begins with its backward."""
        self.updates = 0
        self._calls = ModuleCalls(self._around_call)
        self._in_parts: set[int] = set()
        """Ids of modules that were not called yet: their children are watched too."""
        self._batches = LoaderBatches()
        self._scaling = Scaling(self)
        if not self._off:
            # Before the loop begins: it may compile its first forward.
            set_up_torch(job)
        TURN.give_way = self._give_way
        os.register_at_fork(after_in_child=self._forked)

    def install(self, taps: Taps) -> None:
        """Hook what a loop calls."""
        taps.optimizer_made = functools.partial(self._safely, self._optimizer_made)
        # What `clip_grad_norm_` calls, since scripts import that name early.
        wrapping = Wrapping()
        wrap = wrapping.wrap
        wrap(torch.nn.utils.clip_grad, "_clip_grads_with_norm_", self._around_clip)
        wrap(torch.autograd, "backward", self._around_backward)
        wrapping.hook_updates(self._update_begins, self._update_ended)
        from torch.utils.data.dataloader import _BaseDataLoaderIter

        wrap(_BaseDataLoaderIter, "__next__", self._around_fetch)
        self._scaling.install()
        if self._job.look_steps:
            self._safely(LOADERS.begin)

    # What may go wrong in the canary must not reach the user's loop.

    def _safely(self, call: Callable[..., Any], *args: Any) -> Any:
        if self._off:
            return None
        try:
            return call(*args)
        except Exception as error:
            if isinstance(error, StopTraining) or struck(error):
                raise
            self._off = True
            say(f"this loop is not recorded further: {one_line(error)}; please report it")
            if os.environ.get("CANARY_DEBUG"):
                raise
            if self._run is not None:
                self._run.failed(error)
            return None

    def _forked(self) -> None:
        """In a forked process: what its parent records is not recorded again."""
        self._off = self._off or self._run is not None
        self._run = None

    def _give_way(self, by: str) -> None:
        """A Trainer or a Recorder begins: it is recorded in place of a loop."""
        run = self._run
        if run is not None and not self._off and not run.written:
            TURN.notes.append(f"an earlier loop is not recorded ({run.describe()}): {by} trains")
            run.discard()
        self._run, self._off = None, True

    # Which loop is recorded.

    def _optimizer_made(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizers.append(weakref.ref(optimizer))
        if self._run is None or size_of(optimizer) > self._run.size:
            if self._run is None and not self._optimizers[1:]:
                EARLY.begin()
            self._unsettled = True
            self._watch(outermost_modules(parameters_of(optimizer)))

    def _watch(self, tops: Sequence[nn.Module]) -> None:
        """Watch the calls of these modules, and of their children until one is called itself: a
        loop may call only parts of it, or its `forward`."""
        self._calls.watch([*tops, *children_of(tops)])
        self._in_parts |= set(map(id, tops))

    def _called_whole(self, module: nn.Module) -> None:
        for whole in (module, without_wrappers(module)):
            if id(whole) in self._in_parts:
                self._in_parts.remove(id(whole))
                for child in children_of([whole]):
                    self._calls.forget(child)

    def _decide(self, module: nn.Module | None) -> None:
        """Begin to record the loop of the largest model, if it is larger than what is recorded.
        `module`: what is called now; another model waits for its own call. None: any may begin."""
        living = [one for reference in self._optimizers if (one := reference()) is not None]
        optimizers = sorted(living, key=size_of, reverse=True)
        if not optimizers or TURN.taken:
            return
        size = size_of(optimizers[0])
        known = 0 if self._run is None else self._run.size
        if not size or size <= known:
            self._unsettled = False
        elif module is None or holds(module, optimizers[0]):
            self._unsettled = False
            self._begin(optimizers)

    def _begin(self, optimizers: Sequence[torch.optim.Optimizer]) -> None:
        notes: list[str] = []
        if self._run is not None:
            if self._run.is_over or self._run.written:
                return
            notes.append(
                f"an earlier loop is not recorded ({self._run.describe()}): the model of a later "
                "one is larger"
            )
            self._run.discard()
            self._run = None
        launch = claimed_launch(self._job, self._started)
        if launch is None:
            self._off = True
            return
        self._begun += 1
        launch.notes += notes
        tops = outermost_modules(parameters_of(optimizers[0]))
        self._watch(tops)
        self._run = Recording(self._job, launch, tops, optimizers)
        if self._begun == 1:
            follow_parent()

    # What the loop does.

    def _around_call(
        self, module: nn.Module, called: Callable[..., Any], args: Any, kwargs: Any
    ) -> Any:
        if self._off or self._inside or in_backward() or self._elsewhere():
            return called(*args, **kwargs)
        if self._in_parts:
            self._safely(self._called_whole, module)
        if not torch.is_grad_enabled():
            self._batches.doubted()
            return called(*args, **kwargs)
        self._safely(self._model_called, module, args, kwargs)
        run = self._run
        if run is None:
            return called(*args, **kwargs)
        self._inside = True
        try:
            with run.timed("forward"):
                outputs = called(*args, **kwargs)
        finally:
            self._inside = False
        self._safely(run.returned, outputs)
        return outputs

    def _model_called(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        if not module.training:
            self._batches.doubted()
        elif self._unsettled:
            self._decide(module)
        arguments = entering(module, args, kwargs)
        self._batches.entered(arguments)
        if self._run is not None:
            self._run.called(arguments, trains=module.training)
        elif self._unsettled:
            self._entered = arguments or self._entered

    def _elsewhere(self) -> bool:
        """Return whether this is another thread than the one that trains."""
        return self._run is not None and self._run.thread != threading.get_ident()

    def _around_backward(self, original: Callable[..., None], *args: Any, **kwargs: Any) -> None:
        if self._off or torch.compiler.is_compiling() or in_backward() or self._elsewhere():
            original(*args, **kwargs)
            return
        self._safely(self._backward_begins, args[0] if args else kwargs.get("tensors"))
        run = self._run
        with contextlib.nullcontext() if run is None else run.timed("backward"):
            original(*args, **kwargs)
        if run is not None:
            self._safely(run.backward_ended, self._scaling.factor(run))

    def _backward_begins(self, given: Any) -> None:
        if self._run is None and self._unsettled:
            self._decide(None)
            if self._run is not None:
                self._run.called(self._entered, trains=False)
        run = self._run
        if run is None:
            return
        scaled = loss_tensors(given)
        inside = run.computed(scaled)
        losses = [self._scaling.unscaled(one) for one in scaled]
        run.backward_begins(losses, self._batches.take(), inside=inside)

    def _update_begins(self, optimizer: Any, args: Any, kwargs: Any) -> Any:
        if self._off or torch.compiler.is_compiling():
            return None
        if id(optimizer) in self._updating:  # its last step raised
            self._updating = []
        self._updating.append(id(optimizer))
        if len(self._updating) > 1:
            return None
        return self._safely(self._first_update_begins, optimizer, args, kwargs)

    def _first_update_begins(self, optimizer: Any, args: Any, kwargs: Any) -> Any:
        if self._unsettled and (self._run is None or size_of(optimizer) > self._run.size):
            self._decide(None)
        run = self._run
        if run is None or not run.optimizers.trains(optimizer):
            return None
        if self._elsewhere():
            run.moves()
        inside = in_backward()
        run.update_begins(optimizer, inside=inside)
        run.optimizer_called()
        watched = around_closure(
            args,
            kwargs,
            functools.partial(self._safely, run.closure_begins),
            functools.partial(self._safely, run.gradients_ready),
        )
        if watched is None and not inside:
            run.gradients_ready()
        return watched

    def _update_ended(self, optimizer: Any, *_: Any) -> None:
        if self._off or torch.compiler.is_compiling():
            return
        if self._updating:
            self._updating.pop()
        if self._updating:
            return
        self.updates += 1
        self._safely(self._whole_update_ended, optimizer)

    def _whole_update_ended(self, optimizer: Any) -> None:
        run = self._run
        if run is None:
            return
        if run.optimizers.trains(optimizer):
            run.update_ended(optimizer)
            self._scaling.step_ended()
        else:
            run.other_stepped()

    def step_skipped(self, optimizer: Any) -> None:
        """A gradient scaler called no step."""
        run = self._run
        if run is not None and run.optimizers.trains(optimizer):
            self._safely(run.skipped)

    def _around_clip(
        self, original: Any, parameters: Any, most: Any, norm: Any, *args: Any, **kwargs: Any
    ) -> Any:
        if self._run is not None and not torch.compiler.is_compiling():
            self._safely(self._run.clipped, parameters, most, norm)
        return original(parameters, most, norm, *args, **kwargs)

    def _around_fetch(self, fetch: Callable[[Any], Any], iterator: Any) -> Any:
        run = self._run
        if self._off or self._elsewhere():
            return fetch(iterator)
        with contextlib.nullcontext() if run is None else run.timed("data"):
            batch = fetch(iterator)
        if torch.is_grad_enabled():
            self._batches.yielded(iterator, batch)
        return batch


def begin(taps: Taps, started: float) -> None:
    """Watch this process; `started` is when it began."""
    LoopWatch(Job.read(Path(os.environ[JOB])), started).install(taps)
