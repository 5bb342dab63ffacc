"""The step waits for its next batch."""

from __future__ import annotations

from canary.record.bottlenecks.common import Answer, NotJudged, band, percent
from canary.record.types import Bottleneck, Evidence, RunRecord

NAME = "data_loading"
WATCH, BOTTLENECK = 0.10, 0.25
"""Shares of the step in the data phase."""


def judge(record: RunRecord) -> Answer:
    """Judge by the share of the data phase, in which nothing else is done."""
    waited = record.perf.dataloader_wait_pct
    if waited is None:
        return NotJudged("the phases of the steps are not known")
    severity = band(waited / 100, WATCH, BOTTLENECK)
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
        name=NAME,
        severity=severity,
        cost=waited / 100,
        evidence=evidence,
        advice="prepare batches ahead (more loader workers, pinned memory), or move work out of "
        "the collator, which runs in every step",
    )
