"""What trackers (TensorBoard, wandb ...) are given of a run: scalars by name. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

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
"""Names of the exact lane's scalars, and where a record's `exact` has them."""


def row_scalars(row: Mapping[str, Any]) -> dict[str, float]:
    """Of one step: time, phases, memory, tokens, loss and the metrics of RL; without what was not
    measured."""
    found: dict[str, Any] = {"step_time_s": row["wall_s"]}
    found |= {f"phase/{name}_s": seconds for name, seconds in row["phases"].items()}
    found |= {f"memory/{name}": row.get(name) for name in MEMORY}
    found |= {f"tokens/{name}": row.get(name) for name in TOKENS}
    found |= {name: row.get(name) for name in MEASURED}
    found |= {f"rl/{name}": value for name, value in row.get("rl", {}).items()}
    return _named(found) | _alerts(row)


def _alerts(row: Mapping[str, Any]) -> dict[str, float]:
    """`anomaly/<category>_<severity>`: how many of them this step raised."""
    names = (f"anomaly/{one['category']}_{one['severity']}" for one in row.get("alerts") or ())
    return {name: float(count) for name, count in Counter(names).items()}


def exact_scalars(exact: Mapping[str, Any]) -> dict[str, float]:
    """Of the probe: one number a signal; without what it did not see."""
    found = {name: exact.get(stage, {}).get(key) for name, (stage, key) in EXACT.items()}
    live = exact.get("memory", {}).get("live_tensors")
    found["live_tensors"] = live[-1] if live else None
    return _named({f"exact/{name}": value for name, value in found.items()})


def _named(values: Mapping[str, Any]) -> dict[str, float]:
    return {
        f"{PREFIX}/{name}": value
        for name, value in values.items()
        if isinstance(value, int | float)
    }
