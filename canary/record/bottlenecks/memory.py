"""Bottlenecks of memory: spikes, growth, and attention that stores all scores."""

from __future__ import annotations

from canary.record.bottlenecks.common import MB, Answer, NotJudged, band, gpu_memory_bytes
from canary.record.exact import Micro
from canary.record.types import Bottleneck, Evidence, RunRecord

SPIKE_WATCH, SPIKE_BOTTLENECK = 1.3, 1.6
"""The peak over the typical step's memory."""
SPIKE_LEAST_MB = 200.0
"""Smaller spikes are harmless."""


def memory_spikes(record: RunRecord) -> Answer:
    """Some steps need far more memory than the rest.

    Judge by the peak over the median step's memory, and by the allocator's retries.
    """
    memory, peak_mb = record.memory, record.perf.max_mem_mb
    if memory.typical_bytes is None or peak_mb is None:
        return NotJudged("memory was not recorded step by step")
    typical_mb = memory.typical_bytes / MB
    ratio = peak_mb / typical_mb
    severity = (
        band(ratio, SPIKE_WATCH, SPIKE_BOTTLENECK)
        if peak_mb - typical_mb >= SPIKE_LEAST_MB
        else None
    )
    evidence = [
        Evidence(what="peak", value=peak_mb, unit="MB"),
        Evidence(what="typical", value=typical_mb, unit="MB"),
    ]
    if memory.peak_step is not None:
        evidence.append(Evidence(what="first at step", value=memory.peak_step))
    if memory.alloc_retries:
        severity = "bottleneck"
        evidence.append(
            Evidence(what="allocator retries, each a stall", value=memory.alloc_retries)
        )
    if severity is None:
        return None
    return Bottleneck(
        name="memory_spikes",
        severity=severity,
        evidence=evidence,
        advice="limit the longest batch (max_length, batches grouped by length) or the work that "
        "comes every few steps; for fragmentation set expandable_segments",
    )


GROWTH_WATCH_MB, GROWTH_BOTTLENECK_MB = (
    {"device": 0.1, "resident": 1.0},
    {"device": 0.5, "resident": 2.0},
)
"""MB per step by kind of memory; resident memory grows for a while even without a leak."""


def memory_growth(record: RunRecord) -> Answer:
    """Memory grows steadily while training.

    Judge by the lower end of the slope's interval: the least growth.
    """
    growth = record.memory.growth
    if growth is None:
        return NotJudged("the memory's slope needs 30 timed steps")
    least = growth.low / MB
    severity = band(least, GROWTH_WATCH_MB[growth.kind], GROWTH_BOTTLENECK_MB[growth.kind])
    if severity is None:
        return None
    evidence = [
        Evidence(
            what=f"{growth.kind} memory", value=growth.bytes_per_step / MB, unit="MB per step"
        ),
        Evidence(what="at least", value=least, unit="MB per step"),
    ]
    typical = record.memory.typical_bytes
    if typical:
        steps = typical / growth.bytes_per_step
        evidence.append(Evidence(what="doubles in", value=steps, unit="steps"))
    return Bottleneck(
        name="memory_growth",
        severity=severity,
        evidence=evidence,
        advice="look for tensors that keep their graph across steps (losses, metrics: detach them "
        "or use .item()), and for caches without a limit",
    )


SAMPLED = ("prompt", "completion")
"""Parts of an online trainer's sequences; it attends over both."""
LONG = 1024
"""Sequences of this many tokens need much memory for scores."""
LARGE_SHARE = 0.01
"""Share of the device's memory for the scores of one head in one layer: models have hundreds."""


def attention_memory(record: RunRecord) -> Answer:
    """Attention that stores all scores: memory grows with the square of the length.

    Judge by the model's attention and the longest batch that the look saw.
    """
    implementation = record.exact.get("model", {}).get("attention")
    micro_batch = record.config.get("batch_size")
    longest = _longest(record.exact.get("batches", []), micro_batch)
    if implementation is None or longest is None:
        return NotJudged("the record lacks the model's attention or its batches")
    rows, length = longest
    if implementation != "eager" or length < LONG:
        return None
    one_head = 4 * rows * length**2
    evidence = [
        Evidence(what="longest batch", value=length, unit="tokens per row"),
        Evidence(what="rows in it", value=rows),
        Evidence(
            what="scores of one head in one layer, in float32", value=one_head / MB, unit="MB"
        ),
    ]
    peak, device = record.memory.peak_allocated_bytes, gpu_memory_bytes(record)
    if peak is not None:
        evidence.append(Evidence(what="peak", value=peak / MB, unit="MB"))
    large = device is not None and one_head > LARGE_SHARE * device
    return Bottleneck(
        name="attention_memory",
        severity="bottleneck" if large else "watch",
        evidence=evidence,
        advice="set attn_implementation to sdpa or flash_attention_2, which store no scores; twice "
        "the length needs four times this memory",
    )


def _longest(batches: list[list[Micro]], micro_batch: int | None) -> tuple[int, int] | None:
    """Return (rows, tokens per row) of the batch with the largest scores. A rollout is split into
    micro-batches of `micro_batch` rows."""
    shapes = [
        shape
        for step in batches
        for micro in step
        for name, shape in micro.get("shapes", {}).items()
        if name.endswith("input_ids") and len(shape) == 2
    ]
    for step in batches:
        for micro in step:
            found = [micro.get("shapes", {}).get(f"{part}_ids", []) for part in SAMPLED]
            if all(len(shape) == 2 for shape in found):
                rows = min(found[0][0], micro_batch or found[0][0])
                shapes.append([rows, sum(shape[1] for shape in found)])
    largest = max(shapes, key=lambda shape: shape[0] * shape[1] ** 2, default=None)
    return None if largest is None else (largest[0], largest[1])
