"""Bottlenecks of memory: spikes, growth, and attention that stores all scores."""

from __future__ import annotations

from canary.record.bottlenecks.common import MB, band, found, gpu_memory_bytes
from canary.record.exact import Micro
from canary.record.types import Bottleneck, RunRecord

SPIKE_WATCH, SPIKE_BOTTLENECK = 1.3, 1.6
"""The peak over the typical step's memory."""
SPIKE_LEAST_MB = 200.0
"""Smaller spikes are harmless."""


def memory_spikes(record: RunRecord) -> Bottleneck | None:
    """Some steps need far more memory than the rest.

    Judge by the peak over the median step's memory, and by the allocator's retries.
    """
    memory, peak_mb = record.memory, record.perf.max_mem_mb
    if memory.typical_bytes is None or peak_mb is None:
        return None
    typical_mb, retries = memory.typical_bytes / MB, memory.alloc_retries or None
    severity = band(peak_mb / typical_mb, SPIKE_WATCH, SPIKE_BOTTLENECK)
    if peak_mb - typical_mb < SPIKE_LEAST_MB:
        severity = None
    return found(
        "memory_spikes",
        "bottleneck" if retries else severity,
        ("peak", peak_mb, "MB"),
        ("typical", typical_mb, "MB"),
        ("first at step", memory.peak_step, ""),
        ("allocator retries, each a stall", retries, ""),
        advice="limit the longest batch (max_length, batches grouped by length) or the work that "
        "comes every few steps; for fragmentation set expandable_segments",
    )


GROWTH_WATCH_MB, GROWTH_BOTTLENECK_MB = (
    {"device": 0.1, "resident": 1.0},
    {"device": 0.5, "resident": 2.0},
)
"""MB per step by kind of memory; resident memory grows for a while even without a leak."""


def memory_growth(record: RunRecord) -> Bottleneck | None:
    """Memory grows steadily while training.

    Judge by the lower end of the slope's interval: the least growth.
    """
    growth, typical = record.memory.growth, record.memory.typical_bytes
    if growth is None:
        return None
    least = growth.low / MB
    severity = band(least, GROWTH_WATCH_MB[growth.kind], GROWTH_BOTTLENECK_MB[growth.kind])
    doubles = typical / growth.bytes_per_step if typical and severity else None
    return found(
        "memory_growth",
        severity,
        (f"{growth.kind} memory", growth.bytes_per_step / MB, "MB per step"),
        ("at least", least, "MB per step"),
        ("doubles in", doubles, "steps"),
        advice="look for tensors that keep their graph across steps (losses, metrics: detach them "
        "or use .item()), and for caches without a limit",
    )


SAMPLED = ("prompt", "completion")
"""Parts of an online trainer's sequences; it attends over both."""
LONG = 1024
"""Sequences of this many tokens need much memory for scores."""
LARGE_SHARE = 0.01
"""Share of the device's memory for the scores of one head in one layer: models have hundreds."""


def attention_memory(record: RunRecord) -> Bottleneck | None:
    """Attention that stores all scores: memory grows with the square of the length.

    Judge by the model's attention and the longest batch that the look saw.
    """
    longest = _longest(record.exact.get("batches", []), record.config.get("batch_size"))
    if record.exact.get("model", {}).get("attention") != "eager" or longest is None:
        return None
    rows, length = longest
    one_head = 4 * rows * length**2
    peak, device = record.memory.peak_allocated_bytes, gpu_memory_bytes(record)
    large = device is not None and one_head > LARGE_SHARE * device
    return found(
        "attention_memory",
        None if length < LONG else "bottleneck" if large else "watch",
        ("longest batch", length, "tokens per row"),
        ("rows in it", rows, ""),
        ("scores of one head in one layer, in float32", one_head / MB, "MB"),
        ("peak", None if peak is None else peak / MB, "MB"),
        advice="set attn_implementation to sdpa or flash_attention_2, which store no scores; twice "
        "the length needs four times this memory",
    )


def _longest(batches: list[list[Micro]], micro_batch: int | None) -> tuple[int, int] | None:
    """Return (rows, tokens per row) of the batch with the largest scores. A rollout is split into
    micro-batches of `micro_batch` rows."""
    shapes = []
    for seen in (micro.get("shapes", {}) for step in batches for micro in step):
        ids = [shape for name, shape in seen.items() if name.endswith("input_ids")]
        shapes += [(shape[0], shape[1]) for shape in ids if len(shape) == 2]
        parts = [seen.get(f"{part}_ids", []) for part in SAMPLED]
        if all(len(shape) == 2 for shape in parts):
            rows = min(parts[0][0], micro_batch or parts[0][0])
            shapes.append((rows, sum(shape[1] for shape in parts)))
    return max(shapes, key=lambda shape: shape[0] * shape[1] ** 2, default=None)
