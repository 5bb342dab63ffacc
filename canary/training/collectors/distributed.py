"""The setup of several ranks, as seen from one of them, values gathered from all, and collectives:
their number per step, and the time that the rank waits in them.

The process groups number the collectives that they begin, from Python or from the C++ reducer of
DistributedDataParallel. Waiting is measured in two places, without changing the computation:

- Blocking calls of `torch.distributed` from Python (gathers of metrics, barriers). So are the
  collectives of DistributedDataParallel before a forward (buffers, the order of its buckets).
- The end of a backward. The autograd engine runs its final callbacks in the order of registration.
  One registered at the start runs when all gradients are computed, and before the reducer waits for
  its last buckets.

On a GPU both are timed by events of the current stream, because the stream waits, not the host.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed
from torch.nn.parallel import DistributedDataParallel

from canary.training.collectors.aside import Wrapping
from canary.training.collectors.clock import HostMark


def describe_distributed(trainer: Any) -> dict[str, Any]:
    """Return `{type, world_size, backend}` of several ranks; empty for one process."""
    known = getattr(trainer, "distributed_facts", None)
    if known is not None:
        return dict(known) if known["world_size"] > 1 else {}
    if world_size() == 1:
        return {}
    state = getattr(getattr(trainer, "accelerator", None), "state", None)
    kind = getattr(getattr(state, "distributed_type", None), "value", "NO")
    backend = str(torch.distributed.get_backend())
    return {"type": str(kind), "world_size": world_size(), "backend": backend}


def world_size() -> int:
    """Return the number of ranks; 1 without `torch.distributed`."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return int(torch.distributed.get_world_size())
    return 1


def this_rank() -> tuple[int, int]:
    """Return this process's rank and the number of ranks: as torchrun sets them, else as the
    default process group knows them."""
    distributed = torch.distributed
    if "RANK" not in os.environ and distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


BLOCKING = (
    "all_gather",
    "all_gather_into_tensor",
    "all_gather_object",
    "all_reduce",
    "all_to_all",
    "all_to_all_single",
    "barrier",
    "broadcast",
    "broadcast_object_list",
    "gather",
    "gather_object",
    "monitored_barrier",
    "recv",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "scatter",
    "scatter_object_list",
)
"""Functions of `torch.distributed` that block unless called with `async_op=True`."""


class Waits:
    """The collectives of one step: their number, and the intervals in which the rank waited."""

    def __init__(self, count: int | None, intervals: list[tuple[HostMark, HostMark]]) -> None:
        self.count = count
        self._intervals = intervals

    def seconds(self) -> float:
        """Return the time waited; all marks must be past."""
        return sum(start.seconds_until(end) for start, end in self._intervals)


class CollectiveTimer:
    """Measures the collectives of this process from `begin` to `end`; idle with one rank."""

    def __init__(self, make_mark: Callable[[], HostMark]) -> None:
        self._make_mark = make_mark
        self._active = False
        self._inside = False
        self._seen: int | None = None
        self._intervals: list[tuple[HostMark, HostMark]] = []
        self._wrapping = Wrapping()

    def begin(self) -> None:
        """Start measuring; `torch.distributed` must be initialized by now."""
        self._active = world_size() > 1
        if not self._active:
            return
        self._seen = collectives_begun()
        for owner in (torch.distributed, torch.distributed.distributed_c10d):
            for name in BLOCKING:
                self._wrapping.wrap(owner, name, self._blocking)
        self._wrapping.wrap(DistributedDataParallel, "_pre_forward", self._preparing)
        self._wrapping.wrap_backward(self._backward)

    def end(self) -> None:
        """Undo all wrapping."""
        self._wrapping.undo()
        self._active = False

    def _blocking(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        if self._inside:
            return original(*args, **kwargs)
        self._inside = True
        start = self._make_mark()
        try:
            work = original(*args, **kwargs)
        finally:
            self._inside = False
        if work is None or not hasattr(work, "wait"):
            self._intervals.append((start, self._make_mark()))
        return work

    def _preparing(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        """Time the preparation of a forward, if it begins a collective."""
        before, start = collectives_begun(), self._make_mark()
        self._inside = True
        try:
            return original(*args, **kwargs)
        finally:
            self._inside = False
            if collectives_begun() != before:
                self._intervals.append((start, self._make_mark()))

    @contextlib.contextmanager
    def _backward(self, tensors: Any) -> Iterator[None]:
        """Time the wait at the end of a backward; nested backwards are part of the outer one."""
        loss = tensors if isinstance(tensors, torch.Tensor) else next(iter(tensors or ()), None)
        if loss is None or not loss.requires_grad:
            yield
            return
        before = collectives_begun()
        computed: list[HostMark] = []

        def all_computed() -> None:
            self._inside = True
            computed.append(self._make_mark())

        def first(_: torch.Tensor) -> None:
            torch.autograd.Variable._execution_engine.queue_callback(all_computed)

        handle = loss.register_hook(first)
        try:
            yield
        finally:
            handle.remove()
            self._inside = False
            if computed and collectives_begun() != before:
                self._intervals.append((computed[-1], self._make_mark()))

    def step_ended(self) -> Waits | None:
        """Return the collectives of the step; None with one rank."""
        if not self._active:
            return None
        now, before = collectives_begun(), self._seen
        self._seen = now
        count = None if now is None or before is None else max(0, now - before)
        intervals, self._intervals = self._intervals, []
        return Waits(count, intervals)


def collectives_begun() -> int | None:
    """Return the collectives begun in all groups of this process; None if a backend does not number
    them."""
    try:
        groups = list(torch.distributed.distributed_c10d._world.pg_map)
        return sum(group._get_sequence_number_for_group() for group in groups)
    except (AttributeError, RuntimeError):
        return None
