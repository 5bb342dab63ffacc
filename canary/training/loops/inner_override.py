"""A trainer whose class has a training loop of its own in place of the library's inner one.

Such a loop may call the model, clip and update by itself. So its batches and losses are seen at the
calls of the model, and in the probe its gradients after each backward.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from transformers import Trainer

from canary.training.exact.gradients import Gradients
from canary.training.exact.signals import ExactSignals


class InnerLoop:
    """Watches the loop of such a trainer; of every other trainer it watches nothing.

    `batch_enters` gets the arguments of a call of the model by name, `loss_is_known` the loss of
    its output. Both are told of calls with gradients, in training mode.
    """

    def __init__(
        self,
        trainer: Any,
        exact: ExactSignals | None,
        batch_enters: Callable[[dict[str, Any]], None],
        loss_is_known: Callable[[torch.Tensor], None],
    ) -> None:
        self.own = type(trainer)._inner_training_loop is not Trainer._inner_training_loop
        """Whether the trainer has such a loop."""
        self._trainer = trainer
        self._exact = exact
        self._batch_enters = batch_enters
        self._loss_is_known = loss_is_known
        self._gradients: Gradients | None = None

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """While the loop runs."""
        if not self.own:
            yield
            return
        model = self._trainer.model
        if self._exact is not None and self._gradients is None:
            self._gradients = Gradients(model, self._exact)
        with contextlib.ExitStack() as undo:
            before, after = _Hook(self._called), _Hook(self._returned)
            undo.callback(model.register_forward_pre_hook(before, with_kwargs=True).remove)
            undo.callback(model.register_forward_hook(after).remove)
            if self._gradients is not None:
                undo.callback(self._gradients.end)
                self._gradients.begin()
            yield

    def update_begins(self) -> float | None:
        """Reads what the optimizer gets; the gradient norm before clipping, where that was seen."""
        if self._gradients is None:
            return None
        self._gradients.optimizer_begins()
        return self._gradients.before

    def step_ended(self) -> None:
        """The next gradients are another step's."""
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
    """The loss among a model's outputs, which may have no names: it is the first one then."""
    if isinstance(output, Mapping):
        output = output.get("loss")
    elif isinstance(output, tuple | list) and output:
        output = output[0]
    elif not isinstance(output, torch.Tensor):
        output = getattr(output, "loss", None)
    is_one = isinstance(output, torch.Tensor) and output.dim() == 0 and output.requires_grad
    return output if is_one else None


class _Hook:
    """Tells of a model's calls in training."""

    def __init__(self, tell: Callable[..., None]) -> None:
        self._tell = tell

    def __call__(self, model: Any, *call: Any) -> None:
        # Compiled code stays as it is; a replica of DataParallel runs in a thread of its own.
        if torch.compiler.is_compiling() or getattr(model, "_is_replica", False):
            return
        if model.training and torch.is_grad_enabled():
            self._tell(model, *call)

    def __reduce__(self) -> Any:
        """A model that is copied or pickled meanwhile takes a hook along that does nothing."""
        return getattr, (contextlib.nullcontext(), "__exit__")
