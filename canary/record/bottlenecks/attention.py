"""Attention that stores all scores: memory grows with the square of the length."""

from __future__ import annotations

from canary.record.bottlenecks.common import MB, Answer, NotJudged, gpu_memory_bytes
from canary.record.exact import Micro
from canary.record.types import Bottleneck, Evidence, RunRecord

NAME = "attention_memory"
SAMPLED = ("prompt", "completion")
"""Parts of an online trainer's sequences; it attends over both."""
LONG = 1024
"""Sequences of this many tokens need much memory for scores."""
LARGE_SHARE = 0.01
"""Share of the device's memory for the scores of one head in one layer: models have hundreds."""


def judge(record: RunRecord) -> Answer:
    """Judge by the model's attention and the longest batch that the look saw."""
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
        name=NAME,
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
