"""Communication: collectives between ranks, and waiting in them."""

from __future__ import annotations

from collections.abc import Iterator

from canary.compare.diagnosis.evidence import Finding, evidence_of_check
from canary.compare.diagnosis.facts import Facts
from canary.compare.diagnosis.suspects import Evidence
from canary.compare.diagnosis.suspects import RegressionCategory as C
from canary.record.jsonio import number

GREW = 1.25
SHARE_OF_STEP = 0.05
"""Smallest growth of waiting that matters, as a share of the step."""


def findings(facts: Facts) -> Iterator[Finding]:
    """More collectives (exact), or longer waits in the same number: a slow rank or network."""
    more = facts.rose("collectives")
    if more is not None:
        yield Finding(
            C.COMMUNICATION,
            0.96 if facts.entry is None else 0.5,
            "the ranks communicate more often per step",
            (evidence_of_check(more), *_waiting(facts)),
            (
                "synchronise gradients once per optimizer update (no_sync while accumulating)",
                "look for metrics that are gathered in every step",
            ),
            sign="collectives",
        )
    elif facts.entry is None and (waiting := list(_waiting(facts))):
        yield Finding(
            C.COMMUNICATION,
            0.85,
            "the ranks wait longer for each other in the same number of collectives",
            tuple(waiting),
            ("compare the step times of the ranks: one slow rank makes all others wait",),
            sign="ranks_wait",
        )


def _waiting(facts: Facts) -> Iterator[Evidence]:
    (wait_was, wait_now), (skew_was, skew_now) = (
        _means(facts, "wait_s"),
        _means(facts, "imbalance"),
    )
    step = facts.now.perf.step_time.mean
    if wait_was is not None and wait_now is not None:
        grew = wait_now - wait_was
        if wait_now > GREW * wait_was and grew > SHARE_OF_STEP * step:
            was, now = 1e3 * wait_was, 1e3 * wait_now
            words = f"waiting in collectives {was:.3g} -> {now:.3g} ms per step"
            yield Evidence("signal", words, was, now, "ms")
            if skew_was is not None and skew_now is not None and skew_now > skew_was:
                words = f"slowest rank relative to the mean {skew_was:.2f} -> {skew_now:.2f}"
                yield Evidence("signal", words, skew_was, skew_now)


def _means(facts: Facts, key: str) -> tuple[float | None, float | None]:
    """Return the means over steps, (baseline, current), of a figure of several ranks."""
    was, now = (
        number((record.ranks.get(key) or {}).get("mean")) for record in (facts.before, facts.now)
    )
    return was, now
