"""Bottlenecks of the host: threads, data, Python's lock, waits for a device or for other ranks."""

from __future__ import annotations

from canary.config.trainers import trainer_row
from canary.record.bottlenecks.common import Answer, NotJudged, band, on_gpu, percent, unmeasured
from canary.record.types import Bottleneck, Evidence, RunRecord

OTHER_WORK = 50.0
"""Percent of one core that other processes use."""
DELAY = 0.15
"""Share of the step in which the training thread was ready but had no core."""
LEAST_DELAY = 0.10
"""Below this share other work costs the training too little to mention."""


def crowded_threads(record: RunRecord) -> Answer:
    """As many CPU threads as cores, on a machine that also does other work.

    Judge by threads, cores and other work. An operator's threads wait for its last thread: the
    one whose core another process uses. One thread fewer than cores leaves room for that.
    """
    if on_gpu(record):
        return NotJudged("only judged for training on a CPU")
    device = record.env.get("device") or {}
    threads, cores = device.get("threads"), record.env.get("cpu_usable")
    if threads is None or cores is None:
        return NotJudged("the number of threads or cores is not known")
    other, delay = _other_work(record), record.host.run_delay
    if other is None and delay is None:
        return NotJudged("other work on the machine was not measured")
    crowded = (other or 0.0) >= OTHER_WORK or (delay or 0.0) >= DELAY
    crowded = crowded and (delay is None or delay >= LEAST_DELAY)
    if threads < 2 or threads < cores or not crowded:
        return None
    evidence = [
        Evidence(what="torch threads", value=threads),
        Evidence(what="cores", value=cores),
    ]
    if other is not None:
        evidence.append(Evidence(what="other work", value=other / 100, unit="cores"))
    if delay is not None:
        evidence.append(percent("step time without a core", delay))
    return Bottleneck(
        name="crowded_threads",
        severity="bottleneck",
        cost=min(1.0, delay or 0.0),
        evidence=evidence,
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


def data_loading(record: RunRecord) -> Answer:
    """The step waits for its next batch.

    Judge by the share of the data phase, in which nothing else is done.
    """
    waited = record.perf.dataloader_wait_pct
    if waited is None:
        return NotJudged("the phases of the steps are not known")
    severity = band(waited / 100, DATA_WATCH, DATA_BOTTLENECK)
    if severity is None:
        return None
    evidence = [
        percent("step time in the data phase", waited / 100),
        Evidence(what="data phase", value=1000 * record.phases["data"], unit="ms per step"),
    ]
    workers = record.config.get("num_workers")
    if workers is not None:
        evidence.append(Evidence(what="loader workers", value=workers))
    busy = [launch.phases_cpu["data"] for launch in record.launches if launch.phases_cpu]
    if busy:
        evidence.append(
            Evidence(what="its CPU time", value=1000 * sum(busy) / len(busy), unit="ms per step")
        )
    return Bottleneck(
        name="data_loading",
        severity=severity,
        cost=waited / 100,
        evidence=evidence,
        advice="prepare batches ahead (more loader workers, pinned memory), or move work out of "
        "the collator, which runs in every step",
    )


LOCK_WATCH, LOCK_BOTTLENECK = 0.05, 0.20
"""Shares of the computing phases' time."""


def gil_contention(record: RunRecord) -> Answer:
    """The training thread waits for Python's lock, which another thread holds.

    Judge by the smallest of three shares: lock held, training thread off its core, other
    threads on a core. A lock that the training thread itself holds is no contention.
    """
    host = record.host
    if host.gil_contention is None:
        return unmeasured(record, "host.gil_contention")
    severity = band(host.gil_contention, LOCK_WATCH, LOCK_BOTTLENECK)
    if severity is None:
        return None
    assert host.gil_held is not None  # the contention is computed from it
    assert host.waiting is not None
    assert host.other_threads is not None
    return Bottleneck(
        name="gil_contention",
        severity=severity,
        cost=host.gil_contention,
        evidence=[
            percent("time waiting for Python's lock, at most", host.gil_contention),
            percent("lock held", host.gil_held),
            percent("training thread off its core", host.waiting),
            percent("other threads on a core", host.other_threads),
        ],
        advice="move the work of the other Python threads (rewards, logging, tokenizing) into a "
        "separate process",
    )


SYNC_WATCH, SYNC_BOTTLENECK = 0.10, 0.25
"""Shares of the step spent waiting in collectives."""
READS = 20
"""Host reads per forward; each one empties the device's queue. Healthy trainers have about 10."""
RARE_MS = 5.0
"""Milliseconds per read; rarer reads cost next to nothing."""


def synchronization(record: RunRecord) -> Answer:
    """The training waits for values from its device, or for other ranks.

    Judge by the waits that several ranks measured, or on a GPU by the look's host reads.
    """
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
    severity = band(share, SYNC_WATCH, SYNC_BOTTLENECK)
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
        name="synchronization",
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
        name="synchronization",
        severity="watch",
        evidence=[
            Evidence(what="host reads per step", value=reads),
            Evidence(what="forwards per step", value=forwards),
            Evidence(what="one every", value=every_ms, unit="ms"),
        ],
        advice="keep losses and metrics on the device until they are logged: no .item(), no "
        ".tolist(), no tensor in an if",
    )
