"""The training waits for values from its device, or for other ranks."""

from __future__ import annotations

from canary.config.trainers import trainer_row
from canary.record.bottlenecks.common import Answer, NotJudged, band, on_gpu, percent
from canary.record.types import Bottleneck, Evidence, RunRecord

NAME = "synchronization"
WATCH, BOTTLENECK = 0.10, 0.25
"""Shares of the step spent waiting in collectives."""
READS = 20
"""Host reads per forward; each one empties the device's queue. Healthy trainers have about 10."""
RARE_MS = 5.0
"""Milliseconds per read; rarer reads cost next to nothing."""


def judge(record: RunRecord) -> Answer:
    """Judge by the waits that several ranks measured, or on a GPU by the look's host reads."""
    waiting = _collectives(record)
    if waiting is not None:
        return waiting
    reads = record.exact.get("work", {}).get("host_reads")
    if not on_gpu(record):
        if "wait_s" in record.ranks:
            return None
        return NotJudged("only judged for a GPU or several ranks")
    if reads is None:
        return NotJudged("host reads were not counted")
    return _reads(record, reads)


def _collectives(record: RunRecord) -> Bottleneck | None:
    waits, step_s = record.ranks.get("wait_s"), record.perf.step_time.mean
    share = waits["mean"] / step_s if waits and waits["count"] else 0.0
    severity = band(share, WATCH, BOTTLENECK)
    if severity is None:
        return None
    evidence = [percent("step time waiting in collectives", share)]
    count, updates = record.ranks.get("collectives_per_step"), _updates(record)
    if count is not None:
        evidence.append(Evidence(what="collectives per step", value=count))
    if count is not None and updates > 1:
        evidence.append(Evidence(what="updates per step", value=updates))
        evidence.append(Evidence(what="collectives per update", value=count / updates))
    imbalance = record.ranks.get("imbalance") or {}
    if imbalance.get("count"):
        evidence.append(percent("busiest rank above the mean", imbalance["mean"]))
    return Bottleneck(
        name=NAME,
        severity=severity,
        cost=min(1.0, share),
        evidence=evidence,
        advice="balance the work of the ranks (lengths of batches)" + _fewer(record, updates),
    )


def _updates(record: RunRecord) -> float:
    """Return the optimizer updates per step: PPO makes several on one rollout."""
    updates = record.rl.get("updates")
    return updates.mean if updates is not None and updates.count else 1.0


def _fewer(record: RunRecord, updates: float) -> str:
    """Return how to get fewer collectives; an empty text if each update needs all of them."""
    config = record.config
    if trainer_row(config.get("training_type")).own_loop:
        # Its loop exchanges gradients only with an update's last micro-batch.
        fewer = "; each update exchanges gradients: lower ppo.ppo_epochs or ppo.num_mini_batches"
        return fewer if updates > 1 else ""
    if config.get("gradient_accumulation_steps") == 1:
        return ""
    return ", and synchronise gradients once per update, not once per micro-batch"


def _reads(record: RunRecord, reads: int) -> Bottleneck | None:
    forwards = max(1, record.exact["work"].get("forwards") or 1)
    # The optimizer's step counts, one per tensor, are on the host and wait for nothing.
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
        advice="keep losses and metrics on the device until they are logged: no .item(), no "
        ".tolist(), no tensor in an if",
    )
