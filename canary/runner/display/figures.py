"""The state of the running launch, from its newest steps, and as words for the terminal."""

from __future__ import annotations

import shlex
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from canary.config.redaction import hidden
from canary.config.schema import CanaryConfig
from canary.record.host import gil_contention
from canary.record.jsonio import number
from canary.record.metric_names import QUANTITIES
from canary.record.phases import is_online, shown_phases
from canary.record.step_row import Row, RowAlert, is_timed

WINDOW = 10
"""Rates and shares cover this many of the last steps."""
KEPT_ALERTS = 3


class _Recent:
    """The last steps added, and the mean time of all steps added."""

    def __init__(self) -> None:
        self.rows: deque[Row] = deque(maxlen=WINDOW)
        self._count, self._wall_s = 0, 0.0

    def add(self, row: Row) -> None:
        self.rows.append(row)
        self._count += 1
        self._wall_s += float(row["wall_s"])

    def mean_s(self) -> float:
        return self._wall_s / self._count


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
        self.alerts: deque[RowAlert] = deque(maxlen=KEPT_ALERTS)
        self.alerted = 0
        self._all, self._usual = _Recent(), _Recent()

    def add(self, row: Row) -> None:
        """Add a finished step."""
        self.done += 1
        self.newest = row
        self._all.add(row)
        if is_timed(row):
            self._usual.add(row)
        for alert in row.get("alerts") or ():
            self.alerts.append(alert)
            self.alerted += 1

    @property
    def is_timed(self) -> bool:
        """Whether the look is over."""
        return self.newest is not None and not self.newest.get("look")

    @property
    def recent(self) -> Sequence[Row]:
        """The last steps; without looked at and profiled ones, if there are others."""
        return self._usual.rows or self._all.rows

    def seconds_left(self) -> float | None:
        """Return the seconds left; None before the first step, or if the length is unknown."""
        if self.newest is None or self.steps is None:
            return None
        usual = self._usual if self._usual.rows else self._all
        return max(0.0, usual.mean_s() * (self.steps - self.done))

    def loss(self) -> float | None:
        """Return the loss of the newest step."""
        loss = None if self.newest is None else self.newest.get("loss")
        return None if loss is None else float(number(loss))

    def memory_bytes(self) -> float | None:
        """Return peak device memory, or resident memory without a device."""
        row = self.newest
        return None if row is None else row.get("peak_bytes") or row.get("rss_bytes")

    def rate(self, key: Literal["samples", "input_tokens", "completion_tokens"]) -> float | None:
        """Return the amount per second; None if no step has it."""
        counted = [(amount, row["wall_s"]) for row in self.recent if (amount := row.get(key))]
        wall = sum(seconds for _, seconds in counted)
        return sum(amount for amount, _ in counted) / wall if wall > 0 else None

    def step_s(self) -> float:
        """Return the mean seconds per step."""
        recent = self.recent
        return float(sum(row["wall_s"] for row in recent) / len(recent))

    def online(self) -> bool:
        """Whether the training generates its completions."""
        return any(is_online(row["phases"]) for row in self.recent)

    def shares(self) -> dict[str, float]:
        """Return the phases' shares of the wall time by the names to show."""
        wall = 0.0
        totals: dict[str, float] = {}
        for row in self.recent:
            wall += row["wall_s"]
            for name, seconds in row["phases"].items():
                totals[name] = totals.get(name, 0.0) + seconds
        return {name: s / wall for name, s in shown_phases(totals).items()} if wall > 0 else {}

    def cpu_percent(self) -> float | None:
        """Return the training process's CPU use in percent of one core."""
        rows = [row for row in self.recent if row.get("phases_cpu")]
        wall = sum(row["wall_s"] for row in rows)
        cpu = sum(sum(row["phases_cpu"].values()) for row in rows)
        return 100 * cpu / wall if wall > 0 else None

    def gil_contention(self) -> float | None:
        """Return the upper bound of the time share of waiting for the GIL, None if not sampled."""
        return gil_contention(self.recent)

    def learning(self) -> dict[str, float]:
        """Return reward, KL and similar metrics of the newest step."""
        return shown_metrics({} if self.newest is None else self.newest.get("rl") or {})


def shown_metrics(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Return the trainer's metrics that are shown, by the names to show."""
    values = {q.label: q.value_in(metrics) for q in QUANTITIES.values() if q.label}
    return {label: value for label, value in values.items() if value is not None}


UNWATCHED = "not watched; what it leaves is read"
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
    """Return the time left, if it is known."""
    left = pace.seconds_left()
    return [f"{left:.0f} s left"] if left else []


def speed(pace: Pace) -> list[str]:
    """Return loss, step time and rates; of the look only the loss, as it is not timed."""
    if pace.newest is None:
        return [f"loading ({time.monotonic() - pace.started:.0f} s)"]
    loss = pace.loss()
    parts = [] if loss is None else [f"step loss {loss:.4g}"]
    if pace.is_timed:
        parts.append(f"{1000 * pace.step_s():.0f} ms/step")
        parts += _rate(pace.rate("samples"), "samples/s")
        generated = pace.rate("completion_tokens") if pace.online() else None
        parts += _rate(generated or pace.rate("input_tokens"), "tokens/s", generated is not None)
    return parts


def _rate(value: float | None, unit: str, completions: bool = False) -> list[str]:
    if value is None:
        return []
    what = f"completion {unit}" if completions else unit
    return [
        f"{value:,.1f} {what}" if value < 100 and unit == "samples/s" else f"{value:,.0f} {what}"
    ]


def machine(pace: Pace) -> list[str]:
    """Return CPU and GPU utilisation, memory, and GIL contention."""
    parts = []
    cpu = pace.cpu_percent()
    if cpu is not None and pace.is_timed:
        parts.append(f"CPU {cpu:.0f}%")
    gpu = pace.reading.get("gpu_utilization")
    if gpu is not None:
        parts.append(f"GPU {gpu:.0f}%")
    memory = pace.memory_bytes()
    if memory is not None:
        parts.append(f"{memory / MB:,.0f} MB")
    used = pace.reading.get("gpu_memory_bytes")
    if used is not None:
        parts.append(f"{used / GB:.1f} GB of the GPU in use")
    lock = pace.gil_contention()
    if lock is not None and pace.is_timed:
        parts.append(f"GIL {100 * lock:.0f}%")
    return parts


def learning(pace: Pace) -> list[str]:
    """Return reward, KL, entropy and similar metrics."""
    return [f"{name} {value:.3g}" for name, value in pace.learning().items()]


def phase_parts(pace: Pace) -> list[tuple[str, float]]:
    """Return names and shares of the phases that round to 1% of the time or more."""
    if pace.newest is None or not pace.is_timed:
        return []
    return [(name, share) for name, share in pace.shares().items() if share >= 0.005]


def phase_words(parts: list[tuple[str, float]]) -> list[str]:
    """Return words like `rollout 45%`."""
    return [f"{name} {100 * share:.0f}%" for name, share in parts]
