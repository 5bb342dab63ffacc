"""Memory grows steadily while training."""

from __future__ import annotations

from canary.record.bottlenecks.common import MB, Answer, NotJudged, band
from canary.record.types import Bottleneck, Evidence, RunRecord

NAME = "memory_growth"
WATCH_MB, BOTTLENECK_MB = {"device": 0.1, "resident": 1.0}, {"device": 0.5, "resident": 2.0}
"""MB per step by kind of memory; resident memory grows for a while even without a leak."""


def judge(record: RunRecord) -> Answer:
    """Judge by the lower end of the slope's interval: the least growth."""
    growth = record.memory.growth
    if growth is None:
        return NotJudged("the memory's slope needs 30 timed steps")
    least = growth.low / MB
    severity = band(least, WATCH_MB[growth.kind], BOTTLENECK_MB[growth.kind])
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
        name=NAME,
        severity=severity,
        evidence=evidence,
        advice="look for tensors that keep their graph across steps (losses, metrics: detach them "
        "or use .item()), and for caches without a limit",
    )
