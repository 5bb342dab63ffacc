"""Ended steps become rows once the device has delivered their times and values."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import torch

from canary.record.step_row import TOKEN_TOTALS, Row
from canary.training.collectors.aside import uncounted
from canary.training.collectors.batches import count_tokens
from canary.training.collectors.clock import DeferredScalars, StepClock, StepTime
from canary.training.collectors.distributed import CollectiveTimer, Waits
from canary.training.collectors.host import ChildrenCpu
from canary.training.collectors.profiler import StepProfiler
from canary.training.collectors.ran import RAN

Scalar: TypeAlias = torch.Tensor | float | int
LossOf: TypeAlias = Callable[[Sequence[float]], float | None]
"""Returns a step's loss from those of its micro-batches, None without any."""


def summed(losses: Sequence[float]) -> float | None:
    """Return the sum: the loop divides each loss by their number."""
    return sum(losses) if losses else None


class RunningStep:
    """What the step that runs has shown; tensors stay on their device."""

    def __init__(self) -> None:
        self.losses: list[Scalar] = []
        self.tokens: dict[str, Scalar] = {}
        self.metrics: dict[str, list[Scalar]] = {}
        self.grad_norm: Scalar | None = None
        self.learning_rate: Scalar | None = None
        self.samples: int | None = 0
        self.stepped = False
        """Whether an optimizer has stepped."""

    def add_tokens(self, batch: Mapping[str, Any]) -> bool:
        """Count the tokens of a micro-batch. Return whether it has any."""
        counts = count_tokens(batch)
        for name, count in counts.items():
            self.tokens[name] = self.tokens.get(name, 0) + count
        return bool(counts)

    def scalars(self) -> dict[str, Scalar]:
        """Return all numbers by name, as `_Ended` reads them."""
        found = dict(self.tokens)
        found |= {f"loss:{place}": loss for place, loss in enumerate(self.losses)}
        for name, values in self.metrics.items():
            found |= {f"rl:{name}:{place}": value for place, value in enumerate(values)}
        known = {"grad_norm": self.grad_norm, "learning_rate": self.learning_rate}
        return found | {name: value for name, value in known.items() if value is not None}


class FirstSteps(Protocol):
    """The steps that are looked at before those that are timed (see `canary.training.look`)."""

    @property
    def is_on(self) -> bool:
        """Whether the running step is one of them."""

    def ends_with(self, count: int) -> bool:
        """Return whether they end with the `count`-th step."""

    def end(self) -> None:
        """End them; their rows are written."""


@dataclass(frozen=True)
class _Ended:
    row: Row
    time: StepTime
    waits: Waits | None
    scalars: DeferredScalars
    losses: int
    metrics: Mapping[str, int]
    """How many numbers there are of each."""
    loss_of: LossOf

    def complete(self) -> Row:
        """Return the row. Call it once the device has delivered its times and values."""
        row, values = self.row, self.scalars.read()
        row["wall_s"] = self.time.wall_s()
        row["phases"] = self.time.by_phase()
        row["phases_cpu"] = self.time.cpu_by_phase()
        row["host"].update(self.time.on_host())
        if "cpu_s" in row:
            row["cpu_s"] += self.time.cpu_s()
        if self.waits is not None:
            row["collectives"] = self.waits.count
            row["wait_s"] = self.waits.seconds()
        losses = [values[f"loss:{place}"] for place in range(self.losses)]
        row["micro_losses"], row["loss"] = [*losses], self.loss_of(losses)
        row["grad_norm"] = values.get("grad_norm")
        row["learning_rate"] = values.get("learning_rate")
        row["rl"] = {
            name: math.fsum(values[f"rl:{name}:{place}"] for place in range(count)) / count
            for name, count in self.metrics.items()
        }
        for name in TOKEN_TOTALS:
            row[name] = int(values[name]) if name in values else None
        return row


def _of_kernel(path: str) -> int | None:
    """Return the second number in a file of the kernel, in about 20 us; None if it cannot open,
    as in a program with as many open files as it may have. It does not stay open, because a user's
    program may close all files."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return int(os.read(file, 128).split()[1])
    finally:
        os.close(file)


def _resident_bytes() -> int | None:
    """Return the resident memory of this process; on Linux at a fraction of psutil's cost."""
    if sys.platform == "linux":
        pages = _of_kernel("/proc/self/statm")
        return None if pages is None else pages * os.sysconf("SC_PAGE_SIZE")
    import psutil  # a user's Python may lack it

    return int(psutil.Process().memory_info().rss)


class _RunDelay:
    """How long this thread was ready to run but had no core, which shows other work on the machine.
    From Linux: the second number of schedstat, in ns."""

    def __init__(self) -> None:
        self._last: int | None = None

    def since_last(self) -> float | None:
        """Return the seconds since the last call; None at first or without the kernel's counter."""
        before, self._last = self._last, _of_kernel("/proc/thread-self/schedstat")
        return None if before is None or self._last is None else (self._last - before) / 1e9


class EndedSteps:
    """The clock of a training, and its ended steps, passed to `sink` in order. With several ranks,
    rows between `begin` and `end` of `collectives` have `collectives` and `wait_s`. Rows of steps
    of the look have `look: True`, those that the profiler slowed down `profiled: True`."""

    def __init__(
        self,
        device: torch.device,
        sink: Callable[[Row], None],
        look: FirstSteps,
        profiler: StepProfiler | None = None,
    ) -> None:
        self.look = look
        self.clock = StepClock(device)
        self.profiler = profiler
        self.collectives = CollectiveTimer(self.clock.mark)
        self._device = device
        self._sink = sink
        self._run_delay = _RunDelay()
        self._children = ChildrenCpu()
        self._ended: list[_Ended] = []
        self.begun = False
        self.count = 0
        """Ended steps."""

    def begin(self, done: int = 0) -> None:
        """Begin to measure, after `done` earlier steps of the training."""
        self.begun = True
        if self.profiler is not None:
            self.profiler.step_follows(done)
        self._children.begin()
        if self.look.is_on:
            self.clock.told = RAN.phase_is
        self.clock.start()

    def end(self) -> None:
        """Pass on the last rows; end the look of a training that is no longer."""
        if self.profiler is not None:
            self.profiler.training_ended()
        self.flush(wait=True)
        self._look_ends()

    @uncounted()  # the counts of the next step may have begun
    def close(self, launch: int, step: int, now: RunningStep, loss_of: LossOf) -> None:
        """End the step here. Its row is complete once its numbers are on the host."""
        self.count += 1
        deferred = DeferredScalars(now.scalars())
        counts = {name: len(values) for name, values in now.metrics.items()}
        row: Row = {"launch": launch, "step": step, "samples": now.samples, **self._memory()}
        if self.look.is_on:
            row["look"] = True
        if self.profiler is not None:
            with self.clock.phase("other"):
                # Before the step's end, so that timed steps do not contain the profiler's work.
                if self.profiler.step_ends(row["step"]):
                    row["profiled"] = True
        row["host"] = {"run_delay_s": self._run_delay.since_last()}
        if self._device.type == "cpu":
            row["cpu_s"] = self._children.since_last()
        waits = self.collectives.step_ended()
        times, losses = self.clock.close(), len(now.losses)
        self._ended.append(_Ended(row, times, waits, deferred, losses, counts, loss_of))
        if self.profiler is not None:
            self.profiler.step_follows(row["step"])
        self.flush()
        if self.look.ends_with(self.count):
            self.end_look()

    def end_look(self) -> None:
        """End the look, and begin to measure anew."""
        if not self.look.is_on:
            return
        self.flush(wait=True)
        self._look_ends()
        self._run_delay.since_last()
        self._children.since_last()
        self.clock.start()

    def _look_ends(self) -> None:
        self.clock.told = None
        self.look.end()

    def flush(self, wait: bool = False) -> None:
        """Pass on the rows that are ready; with `wait`, wait for the device and pass on all."""
        if wait and self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        while self._ended and (wait or self._ended[0].time.is_ready()):
            row = self._ended.pop(0).complete()
            row["time"] = time.time()
            with self.clock.phase("logging"):
                self._sink(row)

    def _memory(self) -> Row:
        stats: Mapping[str, int] = {}
        if self._device.type == "cuda":
            stats = torch.cuda.memory_stats(self._device)
        return {
            "rss_bytes": _resident_bytes(),
            "allocated_bytes": stats.get("allocated_bytes.all.current"),
            "reserved_bytes": stats.get("reserved_bytes.all.peak"),
            "peak_bytes": stats.get("allocated_bytes.all.peak"),
            "alloc_retries": stats.get("num_alloc_retries"),
        }
