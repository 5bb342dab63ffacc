"""Losses that a gradient scaler multiplied, and the steps that it skips."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import torch
from torch.amp.grad_scaler import GradScaler

if TYPE_CHECKING:
    from canary.training.torch_loop.watch import LoopWatch


class Scaling:
    """Knows what `GradScaler.scale` returned since the last step."""

    def __init__(self, watch: LoopWatch) -> None:
        self._watch = watch
        self._scaler: GradScaler | None = None
        self._known: dict[int, tuple[weakref.ref[torch.Tensor], torch.Tensor]] = {}

    def install(self) -> None:
        """Wrap `GradScaler.scale` and `GradScaler.step`."""
        scale, step = GradScaler.scale, GradScaler.step

        def scales(scaler: Any, outputs: Any) -> Any:
            found = scale(scaler, outputs)
            if found is not outputs:
                self._scaler = scaler
                if isinstance(found, torch.Tensor):
                    self._known[id(found)] = (weakref.ref(found), outputs.detach())
            return found

        def steps(scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            before = self._watch.updates
            found = step(scaler, optimizer, *args, **kwargs)
            if self._watch.updates == before:
                self.step_ended()
                self._watch.step_skipped(optimizer)
            return found

        GradScaler.scale, GradScaler.step = scales, steps

    def unscaled(self, loss: torch.Tensor) -> torch.Tensor:
        """Return a loss as it was before a scaler multiplied it."""
        known = self._known.pop(id(loss), None)
        if known is not None and known[0]() is loss:
            return known[1]
        if self._scaler is None or self._scaler._scale is None:
            return loss.detach()
        return loss.detach() / self._scaler._scale

    def factor(self, run: Any) -> float:
        """Return what the gradients were multiplied by; only a look asks."""
        if self._scaler is None or run.collector.look.exact is None:
            return 1.0
        return float(self._scaler.get_scale())

    def step_ended(self) -> None:
        """The losses of the next step are others."""
        self._scaler = None
        self._known.clear()
