"""The numbers of a running launch as words for the terminal."""

from __future__ import annotations

import shlex
import time

from canary.config.redaction import hidden
from canary.config.schema import CanaryConfig
from canary.runner.display.pace import Pace

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
