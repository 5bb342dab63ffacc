"""A run's scalars for trackers (TensorBoard, wandb ...), by name. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, cast

from canary.record.alerts import alert_words
from canary.record.exact import Exact
from canary.record.step_row import Row, is_timed

PREFIX = "canary"
MEASURED = ("loss", "grad_norm", "learning_rate", "samples")
MEMORY = ("rss_bytes", "allocated_bytes", "reserved_bytes", "peak_bytes")
TOKENS = ("input_tokens", "label_tokens", "completion_tokens")

EXACT = {
    "first_loss": ("first_loss", "loss"),
    "first_gradient_norm": ("first_gradient", "total"),
    "first_update_norm": ("first_update", "delta_norm"),
    "tensors_changed": ("first_update", "tensors_changed"),
    "trainable_parameters": ("model", "trainable_parameters"),
    "operators": ("work", "operator_total"),
    "flops": ("work", "flops"),
    "forwards": ("work", "forwards"),
    "tokens_fed": ("work", "tokens_fed"),
    "host_reads": ("work", "host_reads"),
    "collectives": ("work", "collectives"),
    "tokenizer_calls": ("calls", "tokenizer_calls"),
    "files_opened": ("calls", "files_opened"),
}
"""The exact scalars by name: part and key of `exact`."""

SAMPLED = {
    "utilization/gpu_percent": "gpu_utilization",
    "utilization/gpu_memory_percent": "gpu_memory_utilization",
    "utilization/tree_cpu_percent": "cpu_percent",
    "utilization/machine_cpu_percent": "machine_cpu_percent",
    "memory/gpu_used_bytes": "gpu_memory_bytes",
}
"""Names of values sampled during training, and their names in `canary.machine.sampler`."""
ALERTS = f"{PREFIX}/alerts"


def row_scalars(row: Row) -> dict[str, float]:
    """Return the measured scalars of a step: time, rates, phases, utilisation, memory, tokens,
    loss, RL metrics and alerts. A step of the look and a profiled one have no times, rates and
    utilisation, as in the record."""
    found: dict[str, Any] = _timed(row) if is_timed(row) else {}
    found |= {f"memory/{name}": row.get(name) for name in MEMORY}
    found |= {f"tokens/{name}": row.get(name) for name in TOKENS}
    found |= {name: row.get(name) for name in MEASURED}
    found |= {f"rl/{name}": value for name, value in row.get("rl", {}).items()}
    alerts = row.get("alerts") or ()
    found["alerts"] = len(alerts)
    kinds = Counter(f"anomaly/{one['category']}_{one['severity']}" for one in alerts)
    return _named(found) | {name: float(count) for name, count in kinds.items()}


def _timed(row: Row) -> dict[str, Any]:
    """Return a step's scalars that come from the clock: its time, phases and rates, and the use of
    CPU in percent of one core."""
    wall = row["wall_s"]
    found: dict[str, Any] = {f"phase/{name}_s": value for name, value in row["phases"].items()}
    found["step_time_s"] = wall
    if wall > 0:
        amounts = {
            "samples": row.get("samples"),
            "tokens": row.get("input_tokens"),
            "completion_tokens": row.get("completion_tokens"),
        }
        found |= {f"{name}_per_sec": n / wall for name, n in amounts.items() if n is not None}
        if cpu := row.get("phases_cpu"):
            found["utilization/cpu_percent"] = 100 * sum(cpu.values()) / wall
    return found


def sampled_scalars(reading: Mapping[str, float]) -> dict[str, float]:
    """Return the scalars of the machine's newest samples."""
    return _named({name: reading.get(key) for name, key in SAMPLED.items()})


def alerts_text(row: Row) -> str:
    """Return a step's alerts, one per line; an empty text without alerts."""
    return "  \n".join(alert_words(alert) for alert in row.get("alerts") or ())


def exact_scalars(exact: Exact) -> dict[str, float]:
    """Return one scalar per signal that the look saw."""
    parts = cast("Mapping[str, Mapping[str, Any]]", exact)
    found = {name: parts.get(part, {}).get(key) for name, (part, key) in EXACT.items()}
    found["live_tensors"] = next(reversed(exact.get("memory", {}).get("live_tensors", [])), None)
    return _named({f"exact/{name}": value for name, value in found.items()})


def _named(values: Mapping[str, Any]) -> dict[str, float]:
    return {
        f"{PREFIX}/{name}": value
        for name, value in values.items()
        if isinstance(value, int | float)
    }
