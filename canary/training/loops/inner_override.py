"""Follow a trainer whose class overrides `_inner_training_loop`.

Such a loop may call the model, clip and update by itself. So batches and losses are read when it
calls the model. During the look, gradients are read after each backward.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from transformers import Trainer

from canary.training.exact.gradients import Gradients
from canary.training.look import Look


class InnerLoop:
    """Watches the loop of such a trainer; does nothing for any other trainer.

    `batch_enters` gets the named arguments of a model call, `loss_is_known` the loss of its output.
    Both see only calls with gradients, in training mode.
    """

    def __init__(
        self,
        trainer: Any,
        look: Look,
        batch_enters: Callable[[dict[str, Any]], None],
        loss_is_known: Callable[[torch.Tensor], None],
    ) -> None:
        self.overridden = type(trainer)._inner_training_loop is not Trainer._inner_training_loop
        """Whether the trainer overrides the loop."""
        self._trainer = trainer
        self._look = look
        self._batch_enters = batch_enters
        self._loss_is_known = loss_is_known
        self._gradients: Gradients | None = None

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Watch the loop that runs inside."""
        if not self.overridden:
            yield
            return
        model = self._trainer.model
        with contextlib.ExitStack() as undo:
            before, after = _Hook(self._called), _Hook(self._returned)
            undo.callback(model.register_forward_pre_hook(before, with_kwargs=True).remove)
            undo.callback(model.register_forward_hook(after).remove)
            if self._look.exact is not None:
                self._gradients = Gradients(model, self._look.exact)
                self._look.at_end(self._end_gradients)
                self._gradients.begin()
            yield

    def _end_gradients(self) -> None:
        if self._gradients is not None:
            self._gradients.end()
            self._gradients = None

    def update_begins(self) -> float | None:
        """Read the optimizer's gradients; return the norm before clipping, or None if not seen."""
        if self._gradients is None:
            return None
        self._gradients.optimizer_begins()
        return self._gradients.before

    def step_ended(self) -> None:
        """Note that the next gradients belong to another step."""
        if self._gradients is not None:
            self._gradients.step_ended()

    def _called(self, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        names = list(inspect.signature(type(model).forward).parameters)[1:] if args else []
        self._batch_enters(dict(zip(names, args, strict=False)) | kwargs)

    def _returned(self, _: Any, __: tuple[Any, ...], output: Any) -> None:
        loss = _loss_of(output)
        if loss is not None:
            self._loss_is_known(loss)


def _loss_of(output: Any) -> torch.Tensor | None:
    """Return the loss among a model's outputs; without names it is the first output."""
    if isinstance(output, Mapping):
        output = output.get("loss")
    elif isinstance(output, tuple | list) and output:
        output = output[0]
    elif not isinstance(output, torch.Tensor):
        output = getattr(output, "loss", None)
    is_loss = isinstance(output, torch.Tensor) and output.dim() == 0 and output.requires_grad
    return output if is_loss else None


class _Hook:
    """Passes a model's calls in training to `callback`."""

    def __init__(self, callback: Callable[..., None]) -> None:
        self._callback = callback

    def __call__(self, model: Any, *call: Any) -> None:
        # Compiled code must not change; replicas of DataParallel run in other threads.
        if torch.compiler.is_compiling() or getattr(model, "_is_replica", False):
            return
        if model.training and torch.is_grad_enabled():
            self._callback(model, *call)

    def __reduce__(self) -> Any:
        """Copy or pickle the hook of a model as a hook that does nothing."""
        return getattr, (contextlib.nullcontext(), "__exit__")
