"""The figures of a running launch in words, for the terminal."""

from __future__ import annotations

import shlex
import time

from canary.config.redaction import hidden
from canary.config.schema import CanaryConfig
from canary.protocol.job import Kind
from canary.runner.display.pace import Pace

PURPOSE: dict[Kind, str] = {
    "probe": "exact signals, not timed",
    "measured": "timed, light collection",
}
MB, GB = 2**20, 2**30


def headline(config: CanaryConfig) -> str:
    """One line: trainer, adapter, model, data; or the user's own command."""
    if config.training_type == "exec":
        return f"{config.name}: {shlex.join(hidden(config.command))}"
    adapter = f" + LoRA r={config.lora_r}" if config.use_peft else ""
    name = f"{config.name}: " if config.name else ""
    return (
        f"{name}{config.training_type.upper()}{adapter} of {config.model_name} "
        f"on {config.dataset_name}, {config.dtype}"
    )


def count(pace: Pace) -> str:
    """Steps done, of how many."""
    return str(pace.done) if pace.steps is None else f"{pace.done}/{pace.steps}"


def time_left(pace: Pace) -> list[str]:
    """How long it takes yet, where that is known."""
    left = pace.seconds_left()
    return [f"{left:.0f} s left"] if left else []


def speed(pace: Pace) -> list[str]:
    """Loss, step time and rates; without times in the probe, which is not timed."""
    if pace.newest is None:
        return [f"loading ({time.monotonic() - pace.started:.0f} s)"]
    loss = pace.loss()
    parts = [] if loss is None else [f"step loss {loss:.4g}"]
    if pace.kind == "measured":
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
    """CPU and GPU utilisation, memory, and the share of Python's lock."""
    parts = []
    cpu = pace.cpu_percent()
    if cpu is not None and pace.kind == "measured":
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
    if lock is not None and pace.kind == "measured":
        parts.append(f"GIL {100 * lock:.0f}%")
    return parts


def learning(pace: Pace) -> list[str]:
    """Reward, KL, entropy and the like."""
    return [f"{name} {value:.3g}" for name, value in pace.learning().items()]


def phase_parts(pace: Pace) -> list[tuple[str, float]]:
    """Names and shares of the phases that take a hundredth of the time or more."""
    if pace.newest is None or pace.kind != "measured":
        return []
    return [(name, share) for name, share in pace.shares().items() if share >= 0.005]


def phase_words(parts: list[tuple[str, float]]) -> list[str]:
    """`rollout 45%`."""
    return [f"{name} {100 * share:.0f}%" for name, share in parts]
