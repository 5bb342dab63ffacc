"""Communication: collectives between ranks, and waiting in them."""

from __future__ import annotations

from collections.abc import Iterator

from canary.compare.causes.facts import Facts, evidence_of_check
from canary.compare.causes.finding import Finding
from canary.compare.suspects import Evidence
from canary.compare.suspects import RegressionCategory as C

GREW = 1.25
SHARE_OF_STEP = 0.05
"""Of the step's time: more waiting than this matters."""


def findings(facts: Facts) -> Iterator[Finding]:
    """More collectives are exact; longer waiting in as many is a slow rank or a slow network."""
    more = facts.rose("collectives")
    if more is not None:
        yield Finding(
            C.COMMUNICATION,
            0.96 if facts.entry is None else 0.5,
            "the ranks exchange more often in a step",
            (evidence_of_check(more), *_waiting(facts)),
            (
                "synchronise gradients once an optimizer step (no_sync while accumulating)",
                "look for metrics that are gathered in every step",
            ),
        )
    elif facts.entry is None and (waiting := list(_waiting(facts))):
        yield Finding(
            C.COMMUNICATION,
            0.85,
            "the ranks wait longer for each other in as many exchanges",
            tuple(waiting),
            ("compare the ranks' own step times: one that is slow makes all wait",),
        )


def _waiting(facts: Facts) -> Iterator[Evidence]:
    sides = (facts.before, facts.now)
    for key, words in (
        ("wait_s", "waiting in collectives"),
        ("imbalance", "slowest rank over the mean"),
    ):
        was, now = (record.ranks.get(key) for record in sides)
        if not isinstance(was, int | float) or not isinstance(now, int | float):
            continue
        step = facts.now.perf.step_time.mean
        if key == "wait_s" and now > GREW * was and now - was > SHARE_OF_STEP * step:
            text = f"{words} {1e3 * was:.3g} -> {1e3 * now:.3g} ms a step"
            yield Evidence("signal", text, 1e3 * was, 1e3 * now, "ms")
        elif key == "imbalance" and now > GREW * was:
            yield Evidence("signal", f"{words} {was:.2f} -> {now:.2f}", was, now)
