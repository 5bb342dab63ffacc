"""The state of the running launch, from its newest steps, and as words for the terminal."""

from __future__ import annotations

import shlex
import time
from collections import Counter, deque
from collections.abc import Mapping
from typing import Any, Literal

from canary.config.redaction import hidden
from canary.config.schema import CanaryConfig
from canary.record.host import gil_contention
from canary.record.jsonio import number
from canary.record.metric_names import QUANTITIES
from canary.record.phases import is_online, shown_phases
from canary.record.step_row import Row, is_timed

WINDOW = 10
"""Rates and shares cover this many of the last steps."""


class Pace:
    """The state of the running launch."""

    def __init__(self) -> None:
        self.begin(None)

    def begin(self, steps: int | None) -> None:
        """Reset for a launch that starts."""
        self.steps = steps
        self.started = time.monotonic()
        self.done = 0
        self.newest: Row | None = None
        self.reading: Mapping[str, float] = {}
        """The newest samples of the machine (see `canary.machine.sampler`)."""
        self.recent: deque[Row] = deque(maxlen=WINDOW)
        """The last steps; without looked at and profiled ones, if there are others."""
        self._times = False

    def add(self, row: Row) -> None:
        """Add a finished step."""
        self.done += 1
        self.newest = row
        if is_timed(row) and not self._times:
            self.recent.clear()
            self._times = True
        if is_timed(row) or not self._times:
            self.recent.append(row)

    @property
    def is_timed(self) -> bool:
        """Whether the look is over."""
        return self.newest is not None and not self.newest.get("look")

    def mean_s(self) -> float:
        """Return the mean seconds of the recent steps."""
        return sum(row["wall_s"] for row in self.recent) / len(self.recent)

    def loss(self) -> float | None:
        """Return the loss of the newest step."""
        loss = None if self.newest is None else self.newest.get("loss")
        return None if loss is None else float(number(loss))

    def rate(self, key: Literal["samples", "input_tokens", "completion_tokens"]) -> float | None:
        """Return the amount per second; None if no step has it."""
        counted = [(amount, row["wall_s"]) for row in self.recent if (amount := row.get(key))]
        wall = sum(seconds for _, seconds in counted)
        return sum(amount for amount, _ in counted) / wall if wall > 0 else None

    def cpu_percent(self) -> float | None:
        """Return the training process's CPU use in percent of one core."""
        rows = [row for row in self.recent if row.get("phases_cpu")]
        wall = sum(row["wall_s"] for row in rows)
        cpu = sum(sum(row["phases_cpu"].values()) for row in rows)
        return 100 * cpu / wall if wall > 0 else None


def shown_metrics(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Return the trainer's metrics that are shown, by the names to show."""
    values = {q.label: q.value_in(metrics) for q in QUANTITIES.values() if q.label}
    return {label: value for label, value in values.items() if value is not None}


MB, GB = 2**20, 2**30


def headline(config: CanaryConfig) -> str:
    """Return one line: trainer, adapter, model and data, or the user's command."""
    if config.training_type == "exec":
        return f"{config.name}: {shlex.join(hidden(config.command))}"
    adapter = f" + LoRA r={config.lora_r}" if config.use_peft else ""
    name = f"{config.name}: " if config.name else ""
    return (
        f"{name}{config.training_type.upper()}{adapter} of {config.model_name} "
        f"on {config.dataset_name}, {config.dtype}"
    )


def count(pace: Pace) -> str:
    """Return the steps done, and the number of all steps if it is known."""
    return str(pace.done) if pace.steps is None else f"{pace.done}/{pace.steps}"


def time_left(pace: Pace) -> list[str]:
    """Return the time left, if it is known: not before the first step, nor without a length."""
    if pace.newest is None or pace.steps is None or pace.done >= pace.steps:
        return []
    return [f"{pace.mean_s() * (pace.steps - pace.done):.0f} s left"]


def speed(pace: Pace) -> list[str]:
    """Return loss, step time and rates; of the look only the loss, as it is not timed."""
    if pace.newest is None:
        return [f"loading ({time.monotonic() - pace.started:.0f} s)"]
    loss = pace.loss()
    parts = [] if loss is None else [f"step loss {loss:.4g}"]
    if pace.is_timed:
        recent = pace.recent
        parts.append(f"{1000 * pace.mean_s():.0f} ms/step")
        if (rate := pace.rate("samples")) is not None:
            parts.append(f"{rate:,.{int(rate < 100)}f} samples/s")
        online = any(is_online(row["phases"]) for row in recent)
        if online and (rate := pace.rate("completion_tokens")):
            parts.append(f"{rate:,.0f} completion tokens/s")
        elif (rate := pace.rate("input_tokens")) is not None:
            parts.append(f"{rate:,.0f} tokens/s")
    return parts


def machine(pace: Pace) -> list[str]:
    """Return CPU and GPU utilisation, memory (of the device, or resident), and GIL contention."""
    parts = []
    cpu = pace.cpu_percent()
    if cpu is not None and pace.is_timed:
        parts.append(f"CPU {cpu:.0f}%")
    gpu = pace.reading.get("gpu_utilization")
    if gpu is not None:
        parts.append(f"GPU {gpu:.0f}%")
    newest = pace.newest
    memory = newest.get("peak_bytes") or newest.get("rss_bytes") if newest else None
    if memory is not None:
        parts.append(f"{memory / MB:,.0f} MB")
    used = pace.reading.get("gpu_memory_bytes")
    if used is not None:
        parts.append(f"{used / GB:.1f} GB of the GPU in use")
    lock = gil_contention(pace.recent)
    if lock is not None and pace.is_timed:
        parts.append(f"GIL {100 * lock:.0f}%")
    return parts


def learning(pace: Pace) -> list[str]:
    """Return reward, KL, entropy and similar metrics of the newest step."""
    metrics = shown_metrics({} if pace.newest is None else pace.newest.get("rl") or {})
    return [f"{name} {value:.3g}" for name, value in metrics.items()]


def phase_parts(pace: Pace) -> list[tuple[str, float]]:
    """Return names and shares of the phases that round to 1% of the time or more."""
    wall = sum(row["wall_s"] for row in pace.recent)
    if not pace.is_timed or not wall > 0:
        return []
    totals: Counter[str] = Counter()
    for row in pace.recent:
        totals.update(row["phases"])
    shares = ((name, seconds / wall) for name, seconds in shown_phases(totals).items())
    return [(name, share) for name, share in shares if share >= 0.005]
