"""The training waits for values of its device, or for other ranks."""

from __future__ import annotations

from canary.config.trainers import trainer_row
from canary.record.bottlenecks.common import Answer, NotJudged, band, on_gpu, percent
from canary.record.types import Bottleneck, Evidence, RunRecord

NAME = "synchronization"
WATCH, BOTTLENECK = 0.10, 0.25
"""Shares of the step spent waiting in collectives."""
READS = 20
"""Host reads of a forward, each of which empties the queue of the device: healthy trainers have
about 10."""
RARE_MS = 5.0
"""Milliseconds of step a read: reads that come more seldom cost next to nothing."""


def judge(record: RunRecord) -> Answer:
    """By the waits that several ranks measure, and on a GPU by the probe's count of host reads."""
    waiting = _collectives(record)
    if waiting is not None:
        return waiting
    reads = record.exact.get("work", {}).get("host_reads")
    if not on_gpu(record):
        if "wait_s" in record.ranks:
            return None
        return NotJudged("a read waits for nothing on a CPU, and there is one rank")
    if reads is None:
        return NotJudged("no probe counted host reads")
    return _reads(record, reads)


def _collectives(record: RunRecord) -> Bottleneck | None:
    waits, step_s = record.ranks.get("wait_s"), record.perf.step_time.mean
    share = waits["mean"] / step_s if waits and waits["count"] else 0.0
    severity = band(share, WATCH, BOTTLENECK)
    if severity is None:
        return None
    evidence = [percent("of the step waiting in collectives", share)]
    count, updates = record.ranks.get("collectives_per_step"), _updates(record)
    if count is not None:
        evidence.append(Evidence(what="collectives per step", value=count))
    if count is not None and updates > 1:
        evidence.append(Evidence(what="updates per step", value=updates))
        evidence.append(Evidence(what="collectives an update", value=count / updates))
    imbalance = record.ranks.get("imbalance") or {}
    if imbalance.get("count"):
        evidence.append(percent("busiest rank over the mean", imbalance["mean"]))
    return Bottleneck(
        name=NAME,
        severity=severity,
        cost=min(1.0, share),
        evidence=evidence,
        advice="balance what the ranks get (lengths of batches)" + _fewer(record, updates),
    )


def _updates(record: RunRecord) -> float:
    """Optimizer updates of a step: PPO makes several on one rollout."""
    told = record.rl.get("updates")
    return told.mean if told is not None and told.count else 1.0


def _fewer(record: RunRecord, updates: float) -> str:
    """How there could be fewer collectives; empty where each update has as many as it needs."""
    config = record.config
    if trainer_row(config.get("training_type")).own_loop:
        # Its loop exchanges gradients with an update's last micro-batch alone.
        fewer = "fewer updates per step (ppo.ppo_epochs, ppo.num_mini_batches) exchange less"
        return f"; each update exchanges its gradients, and {fewer}" if updates > 1 else ""
    if config.get("gradient_accumulation_steps") == 1:
        return ""
    return ", and synchronise gradients once an update, not once a micro-batch"


def _reads(record: RunRecord, reads: int) -> Bottleneck | None:
    forwards = max(1, record.exact["work"].get("forwards") or 1)
    # The optimizer's step counts, one a tensor, lie on the host and wait for nothing.
    reads = max(0, reads - record.exact.get("model", {}).get("trainable_tensors", 0))
    every_ms = 1000 * record.perf.step_time.mean / reads if reads else float("inf")
    if reads / forwards <= READS or every_ms > RARE_MS:
        return None
    return Bottleneck(
        name=NAME,
        severity="watch",
        evidence=[
            Evidence(what="host reads per step", value=reads),
            Evidence(what="forwards per step", value=forwards),
            Evidence(what="one every", value=every_ms, unit="ms"),
        ],
        advice="keep losses and metrics on the device (no .item(), .tolist(), or tensor in an if) "
        "and read them when they are logged",
    )
