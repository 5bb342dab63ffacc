"""The thread that trains waits for Python's lock, which another thread holds."""

from __future__ import annotations

from canary.record.bottlenecks.common import Answer, band, percent, unmeasured
from canary.record.types import Bottleneck, RunRecord

NAME = "gil_contention"
WATCH, BOTTLENECK = 0.05, 0.20
"""Shares of the computing phases' time: under 5% is fine."""


def judge(record: RunRecord) -> Answer:
    """By the least of three: how long the lock was held, how long the thread was off its core, and
    how long other threads were on one. A lock that the training holds itself is no contention."""
    host = record.host
    if host.gil_contention is None:
        return unmeasured(record, "host.gil_contention")
    severity = band(host.gil_contention, WATCH, BOTTLENECK)
    if severity is None:
        return None
    assert host.gil_held is not None  # the contention is made of it
    assert host.waiting is not None
    assert host.other_threads is not None
    return Bottleneck(
        name=NAME,
        severity=severity,
        cost=host.gil_contention,
        evidence=[
            percent("of the time waiting for Python's lock, at most", host.gil_contention),
            percent("lock held", host.gil_held),
            percent("training thread off its core", host.waiting),
            percent("other threads on a core", host.other_threads),
        ],
        advice="move what the other Python threads do (rewards, logging, tokenizing) into a "
        "process of its own",
    )
