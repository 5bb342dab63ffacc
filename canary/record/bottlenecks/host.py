"""Bottlenecks of the host: threads, data, Python's lock, waits for a device or for other ranks."""

from __future__ import annotations

import statistics

from canary.config.trainers import trainer_row
from canary.record.bottlenecks.common import band, found, on_gpu
from canary.record.types import Bottleneck, RunRecord

OTHER_WORK = 50.0
"""Percent of one core that other processes use."""
DELAY = 0.15
"""Share of the step in which the training thread was ready but had no core."""
LEAST_DELAY = 0.10
"""Below this share other work costs the training too little to mention."""


def crowded_threads(record: RunRecord) -> Bottleneck | None:
    """As many CPU threads as cores, on a machine that also does other work.

    Judge by threads, cores and other work. An operator's threads wait for its last thread: the
    one whose core another process uses. One thread fewer than cores leaves room for that.
    """
    threads = (record.env.get("device") or {}).get("threads")
    cores = record.env.get("cpu_usable")
    if on_gpu(record) or threads is None or cores is None:
        return None
    other, delay = _other_work(record), record.host.run_delay
    crowded = (other or 0.0) >= OTHER_WORK or (delay or 0.0) >= DELAY
    crowded = crowded and (delay is None or delay >= LEAST_DELAY)
    return found(
        "crowded_threads",
        "bottleneck" if threads >= max(2, cores) and crowded else None,
        ("torch threads", threads, ""),
        ("cores", cores, ""),
        ("other work", None if other is None else other / 100, "cores"),
        ("step time without a core", delay, "%"),
        cost=delay or 0.0,
        advice="use fewer threads than cores, because threads wait for each other: --threads 1 "
        "(canary exec) or threads: 1 (in a config)",
    )


def _other_work(record: RunRecord) -> float | None:
    """Return the CPU of processes outside the training, in percent of one core."""
    sampled, cores = record.memory.sampled, record.env.get("cpu_count")
    training, machine = (
        (sampled.get(name) or {}).get("mean") for name in ("cpu_percent", "machine_cpu_percent")
    )
    if training is None or machine is None or cores is None:
        return None
    return max(0.0, float(machine) * int(cores) - float(training))


DATA_WATCH, DATA_BOTTLENECK = 0.10, 0.25
"""Shares of the step in the data phase."""


def data_loading(record: RunRecord) -> Bottleneck | None:
    """The step waits for its next batch.

    Judge by the share of the data phase, in which nothing else is done.
    """
    if record.perf.dataloader_wait_pct is None:
        return None
    waited = record.perf.dataloader_wait_pct / 100
    busy = [launch.phases_cpu["data"] for launch in record.launches if launch.phases_cpu]
    return found(
        "data_loading",
        band(waited, DATA_WATCH, DATA_BOTTLENECK),
        ("step time in the data phase", waited, "%"),
        ("data phase", 1000 * record.phases["data"], "ms per step"),
        ("loader workers", record.config.get("num_workers"), ""),
        ("its CPU time", 1000 * statistics.fmean(busy) if busy else None, "ms per step"),
        cost=waited,
        advice="prepare batches ahead (more loader workers, pinned memory), or move work out of "
        "the collator, which runs in every step",
    )


LOCK_WATCH, LOCK_BOTTLENECK = 0.05, 0.20
"""Shares of the computing phases' time."""


def gil_contention(record: RunRecord) -> Bottleneck | None:
    """The training thread waits for Python's lock, which another thread holds.

    Judge by the smallest of three shares: lock held, training thread off its core, other
    threads on a core. A lock that the training thread itself holds is no contention.
    """
    host = record.host
    share = host.gil_contention or 0.0
    return found(
        "gil_contention",
        band(share, LOCK_WATCH, LOCK_BOTTLENECK),
        ("time waiting for Python's lock, at most", share, "%"),
        ("lock held", host.gil_held, "%"),
        ("training thread off its core", host.waiting, "%"),
        ("other threads on a core", host.other_threads, "%"),
        cost=share,
        advice="move the work of the other Python threads (rewards, logging, tokenizing) into a "
        "separate process",
    )


SYNC_WATCH, SYNC_BOTTLENECK = 0.10, 0.25
"""Shares of the step spent waiting in collectives."""
READS = 20
"""Host reads per forward; each one empties the device's queue. Healthy trainers have about 10."""
RARE_MS = 5.0
"""Milliseconds per read; rarer reads cost next to nothing."""


def synchronization(record: RunRecord) -> Bottleneck | None:
    """The training waits for values from its device, or for other ranks.

    Judge by the waits that several ranks measured, or on a GPU by the look's host reads.
    """
    return _collectives(record) or _host_reads(record)


def _collectives(record: RunRecord) -> Bottleneck | None:
    waits, step_s = record.ranks.get("wait_s"), record.perf.step_time.mean
    share = waits["mean"] / step_s if waits and waits["count"] else 0.0
    count, updates = record.ranks.get("collectives_per_step"), _updates(record)
    per_update = count / updates if count is not None and updates > 1 else None
    imbalance = record.ranks.get("imbalance") or {}
    return found(
        "synchronization",
        band(share, SYNC_WATCH, SYNC_BOTTLENECK),
        ("step time waiting in collectives", share, "%"),
        ("collectives per step", count, ""),
        ("updates per step", None if per_update is None else updates, ""),
        ("collectives per update", per_update, ""),
        ("busiest rank above the mean", imbalance["mean"] if imbalance.get("count") else None, "%"),
        cost=share,
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


def _host_reads(record: RunRecord) -> Bottleneck | None:
    work = record.exact.get("work", {})
    if not on_gpu(record) or "host_reads" not in work:
        return None
    forwards = max(1, work.get("forwards") or 1)
    # The optimizer's step counts, one per tensor, are on the host and wait for nothing.
    reads = max(0, work["host_reads"] - record.exact.get("model", {}).get("trainable_tensors", 0))
    every_ms = 1000 * record.perf.step_time.mean / reads if reads else float("inf")
    return found(
        "synchronization",
        "watch" if reads / forwards > READS and every_ms <= RARE_MS else None,
        ("host reads per step", reads, ""),
        ("forwards per step", forwards, ""),
        ("one every", every_ms, "ms"),
        advice="keep losses and metrics on the device until they are logged: no .item(), no "
        ".tolist(), no tensor in an if",
    )
