"""Watches what clipping acts on: no gradients at all, or those that a scaler multiplied."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.amp.grad_scaler import GradScaler

from canary.record.exact import Exact
from canary.record.facts import ClipFacts, Facts
from canary.training.collectors.uncounted import uncounted
from canary.training.collectors.wrapping import Wrapping

FAR_BELOW = 0.01
"""A limit below this share of the scale was not multiplied by it."""


class Clips:
    """Counts the clips of a look."""

    subject = "clipping"

    def __init__(self) -> None:
        self._wrapping = Wrapping()
        self._scaler: GradScaler | None = None
        """What multiplied a loss since gradients were last divided."""
        self._seen: ClipFacts = {"clips": 0, "empty": 0, "scaled": 0}

    def begin(self) -> None:
        """Hook clipping and gradient scalers."""
        clip, wrap = torch.nn.utils.clip_grad, self._wrapping.wrap
        # What `clip_grad_norm_` calls, since scripts import that name before the look begins.
        wrap(clip, "_clip_grads_with_norm_", self._around_clip)
        wrap(torch.nn.utils, "clip_grad_value_", self._around_clip)
        wrap(GradScaler, "scale", self._around_scale)
        wrap(GradScaler, "unscale_", self._around_unscale)

    def end(self) -> None:
        """Restore all that was hooked."""
        self._wrapping.undo()
        self._scaler = None

    def tell(self, facts: Facts, exact: Exact) -> None:
        """Add the counts, if anything was clipped."""
        if self._seen["clips"]:
            facts["clips"] = self._seen

    def _around_scale(self, original: Any, scaler: GradScaler, *args: Any, **kwargs: Any) -> Any:
        self._scaler = scaler if scaler.is_enabled() else None
        return original(scaler, *args, **kwargs)

    def _around_unscale(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        self._scaler = None
        return original(*args, **kwargs)

    def _around_clip(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        if args and isinstance(args[0], Iterator):
            args = ([*args[0]], *args[1:])  # it can be read once
        elif isinstance(kwargs.get("parameters"), Iterator):
            kwargs["parameters"] = [*kwargs["parameters"]]
        if not torch.compiler.is_compiling():
            # Wrong arguments are torch's to refuse.
            with uncounted(), contextlib.suppress(Exception):
                self._count(*args, **kwargs)
        return original(*args, **kwargs)

    def _count(
        self,
        parameters: Any,
        max_norm: Any = None,
        *_: Any,
        clip_value: Any = None,
        **more: Any,
    ) -> None:
        """Count one clip; it has the names of torch's arguments."""
        given = [parameters] if isinstance(parameters, torch.Tensor) else [*parameters]
        limit = float(clip_value if max_norm is None else max_norm)
        if limit == float("inf"):
            return
        seen = self._seen
        seen["clips"] += 1
        seen["empty"] += all(value.grad is None for value in given)
        if self._scaler is not None and limit < FAR_BELOW * float(self._scaler.get_scale()):
            seen["scaled"] += 1
