"""The training thread waits for Python's lock, which another thread holds."""

from __future__ import annotations

from canary.record.bottlenecks.common import Answer, band, percent, unmeasured
from canary.record.types import Bottleneck, RunRecord

NAME = "gil_contention"
WATCH, BOTTLENECK = 0.05, 0.20
"""Shares of the computing phases' time."""


def judge(record: RunRecord) -> Answer:
    """Judge by the smallest of three shares: lock held, training thread off its core, other
    threads on a core. A lock that the training thread itself holds is no contention."""
    host = record.host
    if host.gil_contention is None:
        return unmeasured(record, "host.gil_contention")
    severity = band(host.gil_contention, WATCH, BOTTLENECK)
    if severity is None:
        return None
    assert host.gil_held is not None  # the contention is computed from it
    assert host.waiting is not None
    assert host.other_threads is not None
    return Bottleneck(
        name=NAME,
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
