"""As many CPU threads as cores, on a machine that also does other work."""

from __future__ import annotations

from canary.record.bottlenecks.common import Answer, NotJudged, on_gpu, percent
from canary.record.types import Bottleneck, Evidence, RunRecord

NAME = "crowded_threads"
OTHER_WORK = 50.0
"""Percent of one core that other processes use."""
DELAY = 0.15
"""Share of the step in which the training thread was ready but had no core."""
LEAST_DELAY = 0.10
"""Below this share other work costs the training too little to mention."""


def judge(record: RunRecord) -> Answer:
    """Judge by threads, cores and other work. An operator's threads wait for its last thread: the
    one whose core another process uses. One thread fewer than cores leaves room for that."""
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
        name=NAME,
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
