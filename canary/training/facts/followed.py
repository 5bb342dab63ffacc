"""Follows one optimizer through the look, by samples of its tensors.

A sample is at most `ELEMENTS` numbers of each of at most `TENSORS` tensors, in one numpy array: it
is no tensor of the training, and a large model costs no more than a small one.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.optim import Optimizer

from canary.record.facts import FollowedOptimizer, Rounding
from canary.training.exact.parameters import parameters_of, rate_of

TENSORS = 16
ELEMENTS = 256
NAMES = 8
"""Names that are kept of what is broken."""
LONGEST_NAME = 120
ADAMS = ("Adam", "AdamW", "NAdam", "Adamax")
"""Optimizers of torch whose step is near the learning rate, however large the gradient is."""
LOW = (torch.bfloat16, torch.float16)
ABOVE_EPS = 10.0
"""A gradient so many times Adam's `eps` makes a step near the learning rate."""
Sample = NDArray[np.float32]


def short(name: str) -> str:
    """Return a name of the user's code, cut to what a record may hold."""
    return name[:LONGEST_NAME]


class Places:
    """Places in tensors, of which samples are taken."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        self._tensors = tensors
        self._strides = [max(1, value.numel() // ELEMENTS) | 1 for value in tensors]
        counts = zip(tensors, self._strides, strict=True)
        self._sizes = [min(ELEMENTS, -(-value.numel() // stride)) for value, stride in counts]
        self.tensor_of = np.repeat(np.arange(len(tensors)), self._sizes)
        """The number of each element's tensor."""

    def values(self) -> Sample:
        """Return the sample of the tensors themselves."""
        return self._sampled(self._tensors)

    def gradients(self) -> Sample:
        """Return the sample of their gradients; a missing one counts as zeros."""
        found = [value.grad for value in self._tensors]
        if any(one is not None and one.layout != torch.strided for one in found):
            raise ValueError("a gradient is sparse")
        if all(one is None for one in found):
            return np.zeros(len(self.tensor_of), np.float32)
        return self._sampled(found)

    def _sampled(self, values: Sequence[torch.Tensor | None]) -> Sample:
        parts = []
        places = zip(values, self._tensors, self._sizes, self._strides, strict=True)
        for value, own, size, stride in places:
            if value is None:
                parts.append(own.new_zeros(size))
            else:
                parts.append(value.contiguous().as_strided((size,), (stride,)))
        if len({part.device for part in parts}) > 1:
            parts = [part.cpu() for part in parts]
        whole = torch.cat(parts) if parts else torch.empty(0)
        return np.array(whole.detach().float().cpu().numpy(), copy=True)


class Followed:
    """What happens to one optimizer's tensors and gradients between its updates."""

    def __init__(self, optimizer: Optimizer, names: Mapping[int, str]) -> None:
        """`names`: of the model's parameters, by id."""
        self.optimizer = optimizer
        held = parameters_of(optimizer)
        self.ids = {id(value) for value in held}
        chosen = sorted(random.Random(0).sample(range(len(held)), min(TENSORS, len(held))))
        self._tensors = [held[place] for place in chosen]
        self._places = Places(self._tensors)
        self._names = [short(names.get(id(value), "a tensor")) for value in self._tensors]
        self.facts: FollowedOptimizer = {
            "class": short(type(optimizer).__name__),
            "tensors": len(held),
            "with_gradient": 0,
            "updates": 0,
            "backwards": [],
            "rates": [],
            "closure": False,
            "left": 0,
            "emptied": 0,
            "clips_before": 0,
            "clips_after": 0,
            "clips_after_acted": 0,
            "clips_between": 0,
            "written_before": [],
        }
        self.had_gradient: set[int] = set()
        self.resting: set[int] = set()
        self.rested: set[int] = set()
        """Tensors of groups with learning rate 0 in the current and in the first update."""
        self._backwards = 0
        self._stale = self._empty = self._added = False
        self._clipped_before = self._clipped_after = self._clip_acted = False
        self._inside = False
        self._between: Sample | None = None
        """The clipped gradients to which another backward may add."""
        self._before: Sample | None = None
        self._after: Sample | None = None
        self._used: Sample | None = None
        self._asked, self._lost = (np.zeros(len(self._tensors), int) for _ in range(2))
        low = np.array([value.dtype in LOW for value in self._tensors], bool)
        self._is_low = low[self._places.tensor_of]
        adam = type(optimizer).__module__.startswith("torch.optim.")
        self._rounds = adam and type(optimizer).__name__ in ADAMS
        # These write other weights for an evaluation, and take them out again.
        self._swaps = callable(getattr(optimizer, "eval", None))

    def backward_begins(self) -> None:
        """A backward of the loop begins, outside of all updates."""
        if self._inside:
            self.facts["closure"] = True
            return
        self._look_at_clip()
        if self._clip_acted:
            self._clip_acted, now = False, self._places.gradients()
            self._between = now if now.any() else None
        if self._used is not None and (self._backwards == 0 or (self._stale and not self._empty)):
            now = self._places.gradients()
            self._empty = not now.any()
            if self._backwards == 0:
                self._stale = bool(self._used.any()) and same(now, self._used)
        self._backwards += 1

    def backward_ended(self) -> None:
        """It ended: where it adds nothing, the loop writes the gradients, as those of copies."""
        if self._stale and not self._empty and self._used is not None:
            self._added = self._added or not same(self._places.gradients(), self._used)

    def _look_at_clip(self) -> None:
        """Count a clip of gradients that were not complete."""
        clipped, self._between = self._between, None
        if clipped is not None and not same(clipped, self._places.gradients()):
            self.facts["clips_between"] += 1

    def clipped(self, acted: bool) -> None:
        """A clip of this optimizer's gradients; `acted`: whether it changed them."""
        if self._inside:
            return
        if self._backwards:
            self._clipped_before, self._clip_acted = True, acted
        elif self._used is not None and not self._clipped_after:
            self._clipped_after = True
            self.facts["clips_after"] += 1
            self.facts["clips_after_acted"] += acted

    def update_begins(self, shared: bool, *, in_backward: bool, closure: bool) -> None:
        """An update begins. `shared`: another optimizer holds tensors of this one; `closure`: the
        update computes its gradients itself; `in_backward`: a backward goes on."""
        facts = self.facts
        self._look_at_clip()
        self._inside = True
        facts["closure"] = facts["closure"] or in_backward or closure
        self.resting.clear()
        for group in self.optimizer.param_groups:
            self.resting.update(id(one) for one in group["params"] if not group.get("lr", 1))
            self.had_gradient.update(id(one) for one in group["params"] if one.grad is not None)
        if not facts["rates"]:
            self.rested = self.resting.copy()
        facts["with_gradient"] = len(self.had_gradient)
        facts["rates"].append(float(rate_of([self.optimizer]) or 0.0))
        facts["backwards"].append(self._backwards)
        self._before = self._places.values()
        written = self._after is not None and not same(self._before, self._after)
        if written and not shared and not self._swaps:
            where = self._places.tensor_of[self._before != self._after][0]
            facts["written_before"].append(facts["updates"] + 1)
            facts.setdefault("written", self._names[where])

    def update_ended(self) -> None:
        """The update ended: count what it left equal, and what happened before it."""
        facts = self.facts
        if not self._inside or self._before is None:
            return
        self._after, gradients = self._places.values(), self._places.gradients()
        if self._rounds and self._is_low.any() and facts["rates"][-1] > 0:
            self._count_lost(self._before, self._after, gradients)
        if self._used is not None and self._backwards:
            facts["left"] += self._added and not self._empty
            facts["emptied"] += not self._stale or self._empty
        facts["clips_before"] += self._clipped_before
        facts["updates"] += 1
        self._used, self._before = gradients, None
        self._backwards = 0
        self._inside = self._stale = self._empty = self._added = False
        self._clipped_before = self._clipped_after = self._clip_acted = False

    def _count_lost(self, before: Sample, after: Sample, gradients: Sample) -> None:
        eps = self.optimizer.defaults.get("eps", 0.0)
        least = ABOVE_EPS * (float(eps) if isinstance(eps, int | float) else 0.0)
        size, tensors = np.abs(gradients), self._places.tensor_of
        moved = np.array([id(one) not in self.resting for one in self._tensors], bool)[tensors]
        asked = self._is_low & moved & np.isfinite(size) & (size > least)
        self._asked += np.bincount(tensors[asked], minlength=len(self._tensors))
        lost = asked & (before == after)
        self._lost += np.bincount(tensors[lost], minlength=len(self._tensors))

    def described(self) -> FollowedOptimizer:
        """Return what was seen."""
        low = self._asked.nonzero()[0].tolist()
        if low:
            still = [place for place in low if self._lost[place] == self._asked[place]]
            rounding: Rounding = {
                "dtype": str(self._tensors[low[0]].dtype).removeprefix("torch."),
                "tensors": len(low),
                "still": len(still),
                "still_names": [self._names[place] for place in still[:NAMES]],
                "asked": int(self._asked.sum()),
                "lost": int(self._lost.sum()),
            }
            self.facts["rounding"] = rounding
        return self.facts


def same(one: Sample, other: Sample) -> bool:
    """Return whether all numbers are equal."""
    return np.array_equal(one, other, equal_nan=True)


def named_of(model: Any) -> dict[int, str]:
    """Return the names of a model's parameters by id; empty without a model."""
    if not isinstance(model, nn.Module):
        return {}
    return {id(value): name for name, value in model.named_parameters()}
