"""Run chosen steps of a trainer twice on the same state, and compare both bit for bit.

Before such a step, everything that it reads is kept: parameters, buffers, optimizer, scaler, the
trainer's own fields and all random states. After its update, all of that is put back. Then the
step's calls are made again: training_step, clipping, the optimizer's step. Losses, gradients and
parameters are compared. A step unequal to itself shows that the machine or a kernel is not
deterministic.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import torch
from transformers import TrainerCallback

from canary.protocol.job import Twice
from canary.training.collectors.wrapping import Wrapping
from canary.training.exact.parameters import local, tensor_digest
from canary.training.random_states import random_states

Call = Callable[[], Any]
MOST_NAMED = 5


def why_not(trainer: Any) -> str | None:
    """Return why this trainer's steps cannot be run twice in place; None if they can."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return "the training has several ranks"
    for name in ("is_deepspeed_enabled", "is_fsdp_enabled"):
        if getattr(trainer, name, False):
            return "the model is sharded"
    return None


class StepTwice(TrainerCallback):
    """Runs the steps `first` to `last` twice. Make it before any other wrapper of the trainer, so
    that the repeated calls reach only the trainer's own methods."""

    def __init__(self, trainer: Any, first: int, last: int) -> None:
        self._trainer = trainer
        self._steps = range(first, last + 1)
        self._wrapping = Wrapping()
        self._state: _State | None = None
        self._calls: list[tuple[str, Call]] = []
        self._losses: list[bytes] = []
        self._values: list[float] = []
        self._gradients: dict[str, bytes] = {}
        self.repeating = False
        """Whether the calls of now are the second ones."""
        self.found: list[Twice] = []
        self._wrapping.wrap(trainer, "training_step", self._around_step)
        self._wrapping.wrap(trainer.accelerator, "clip_grad_norm_", self._around_clip)
        self._wrapping.hook_updates(self._update_begins, lambda *_: None)
        trainer.add_callback(self)

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Keep the state before a chosen step."""
        self._state = None
        if state.global_step + 1 in self._steps and self._trainer.optimizer is not None:
            self._calls, self._losses, self._values = [], [], []
            self._gradients = {}
            self._state = _State(self._trainer)

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """After a chosen step's update, run the step again and compare."""
        if self._state is None or not any(name == "step" for name, _ in self._calls):
            return
        once = self._outcome()
        self._state.put_back()
        self._losses, self._values, self._gradients = [], [], {}
        calls, self._calls, self.repeating = self._calls, [], True
        try:
            for name, call in calls:
                outcome = call()
                if name == "step":
                    self._keep_loss(outcome)
            self._trainer.optimizer.step()
        finally:
            self.repeating = False
        self.found.append(_compared(state.global_step + 1, once, self._outcome()))
        self._state = None

    def _around_step(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        if self._state is None:
            return original(*args, **kwargs)
        # The step may change its batch.
        again, again_by_name = _copied(args), _copied(kwargs)
        self._calls.append(("step", lambda: original(*again, **again_by_name)))
        loss = original(*args, **kwargs)
        self._keep_loss(loss)
        return loss

    def _around_clip(self, original: Any, parameters: Any, *args: Any, **kwargs: Any) -> Any:
        if self._state is None:
            return original(parameters, *args, **kwargs)
        clipped = parameters if torch.is_tensor(parameters) else list(parameters)
        self._calls.append(("clip", lambda: original(clipped, *args, **kwargs)))
        return original(clipped, *args, **kwargs)

    def _keep_loss(self, loss: Any) -> None:
        if torch.is_tensor(loss):
            self._losses.append(tensor_digest(loss.detach().reshape(-1), exact_bytes=True))
            self._values.append(float(loss.detach().float().mean()))

    def _update_begins(self, *_: Any) -> None:
        if self._state is not None:
            self._gradients = {
                name: _digest(value.grad)
                for name, value in self._trainer.model.named_parameters()
                if value.grad is not None
            }

    def _outcome(self) -> _Outcome:
        after = {name: _digest(p) for name, p in self._trainer.model.named_parameters()}
        return _Outcome(self._losses, self._values, self._gradients, after)


class _Outcome:
    """What one execution of a step gave."""

    def __init__(
        self,
        losses: list[bytes],
        values: list[float],
        gradients: Mapping[str, bytes],
        parameters: Mapping[str, bytes],
    ) -> None:
        self.losses, self.values = losses, values
        self.gradients, self.parameters = gradients, parameters


def _compared(step: int, once: _Outcome, again: _Outcome) -> Twice:
    def differing(one: Mapping[str, bytes], other: Mapping[str, bytes]) -> list[str]:
        return sorted(name for name in {*one, *other} if one.get(name) != other.get(name))

    gradients = differing(once.gradients, again.gradients)
    parameters = differing(once.parameters, again.parameters)
    parts = {
        "loss": once.losses != again.losses,
        "gradients": bool(gradients),
        "update": bool(parameters),
    }
    return {
        "step": step,
        "differs": [name for name, apart in parts.items() if apart],
        "losses": [sum(once.values), sum(again.values)],
        "tensors": len(gradients),
        "of": len(once.gradients),
        "named": gradients[:MOST_NAMED],
    }


def _digest(value: torch.Tensor) -> bytes:
    return tensor_digest(local(value.detach()), exact_bytes=value.device.type == "cpu")


class _State:
    """Everything that a step reads and changes."""

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        self._tensors = [
            (tensor, tensor.detach().clone())
            for tensor in (*trainer.model.parameters(), *trainer.model.buffers())
        ]
        self._gradients = [
            (value, None if value.grad is None else value.grad.detach().clone())
            for value in trainer.model.parameters()
        ]
        self._modes = [(module, module.training) for module in trainer.model.modules()]
        self._optimizer = copy.deepcopy(trainer.optimizer.state_dict())
        self._scaler = getattr(trainer.accelerator, "scaler", None)
        self._scale = None if self._scaler is None else copy.deepcopy(self._scaler.state_dict())
        self._fields = {name: _shallow(value) for name, value in vars(trainer).items()}
        self._restore_random = random_states()

    def put_back(self) -> None:
        """Restore the state."""
        with torch.no_grad():
            for tensor, kept in self._tensors:
                tensor.copy_(kept)
        for value, gradient in self._gradients:
            value.grad = None if gradient is None else gradient.clone()
        for module, training in self._modes:
            module.training = training
        self._trainer.optimizer.load_state_dict(self._optimizer)
        if self._scale is not None and self._scaler is not None:
            self._scaler.load_state_dict(self._scale)
        vars(self._trainer).update(self._fields)
        self._restore_random()


def _shallow(value: Any) -> Any:
    """Return a copy of a plain container; the step may fill it."""
    return copy.copy(value) if type(value) in (list, dict, set) else value


def _copied(value: Any) -> Any:
    """Return a copy of the tensors in plain containers; other objects are shared."""
    if torch.is_tensor(value):
        return value.detach().clone()
    if isinstance(value, Mapping) and not isinstance(value, torch.nn.Module):
        copied = {key: _copied(item) for key, item in value.items()}
        return copied if type(value) is dict else _like(value, copied)
    if type(value) in (list, tuple):
        return type(value)(_copied(item) for item in value)
    return value


def _like(value: Any, copied: dict[Any, Any]) -> Any:
    """Return a mapping of the batch's type, such as a BatchEncoding."""
    made = copy.copy(value)
    made.update(copied)
    return made
