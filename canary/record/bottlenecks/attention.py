"""Attention that stores all scores: its memory grows with the square of the length."""

from __future__ import annotations

from canary.record.bottlenecks.common import MB, Answer, NotJudged, gpu_memory_bytes
from canary.record.exact import Micro
from canary.record.types import Bottleneck, Evidence, RunRecord

NAME = "attention_memory"
SAMPLED = ("prompt", "completion")
"""Parts of the sequences of an online trainer, which attends over both."""
LONG = 1024
"""Tokens from which on the scores weigh."""
LARGE_SHARE = 0.01
"""Of the device's memory, for the scores of one head of one layer: a model has hundreds."""


def judge(record: RunRecord) -> Answer:
    """By the implementation that the probe found in the model and the longest batch it saw."""
    implementation = record.exact.get("model", {}).get("attention")
    micro_batch = record.config.get("batch_size")
    longest = _longest(record.exact.get("batches", []), micro_batch)
    if implementation is None or longest is None:
        return NotJudged("no probe saw the model's attention and its batches")
    rows, length = longest
    if implementation != "eager" or length < LONG:
        return None
    one_head = 4 * rows * length**2
    evidence = [
        Evidence(what="longest batch", value=length, unit="tokens a row"),
        Evidence(what="rows in it", value=rows),
        Evidence(
            what="scores of one head of one layer, in 32 bits", value=one_head / MB, unit="MB"
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
        advice="attn_implementation: sdpa or flash_attention_2 keeps no scores; twice the length "
        "takes four times this",
    )


def _longest(batches: list[list[Micro]], micro_batch: int | None) -> tuple[int, int] | None:
    """(rows, tokens a row) of the batch whose scores are the largest. A rollout is trained on in
    micro-batches of so many rows."""
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
