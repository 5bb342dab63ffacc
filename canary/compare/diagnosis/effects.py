"""Effects that a suspect may explain: changed learning, a slower step, more memory. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from canary.compare.diagnosis.evidence import Finding
from canary.compare.diagnosis.facts import Facts
from canary.compare.diagnosis.suspects import RegressionCategory as C
from canary.compare.report import CheckStatus, Group
from canary.record.phases import PHASES

Effect = Literal["learned", "cost", "memory"]

OF_GROUP: Mapping[Group, Effect] = {
    "correctness": "learned",
    "stability": "learned",
    "performance": "cost",
    "memory": "memory",
}
LOUD: tuple[CheckStatus, ...] = ("fail", "changed", "warn")
"""Statuses that need an explanation, the worst first."""

MODEL = ("forward", "backward", "logprob")
SLOWS: Mapping[C, tuple[str, ...]] = {
    C.OPTIMIZER: ("optimizer",),
    C.OBJECTIVE: (*MODEL, "advantage"),
    C.ADAPTER: (*MODEL, "optimizer", "generation"),
    C.NUMERICS: (*MODEL, "optimizer", "generation", "reward"),
    C.KERNEL: (*MODEL, "optimizer", "generation", "reward", "advantage", "other"),
    C.ROLLOUT: (*MODEL, "generation", "reward", "advantage"),
    C.DATALOADER: ("data",),
    C.IO: ("checkpoint", "evaluation", "logging", "data", "other"),
    C.COMMUNICATION: ("backward", "forward", "optimizer", "other"),
}
"""Phases that a mechanism can slow, for findings without a count or a time; all if not listed."""

MAIN = 0.2
"""A phase with a smaller share of the unexpected time did not slow the step."""


def effects(facts: Facts) -> list[list[Effect]]:
    """Return the effects grouped by severity, the worst first."""
    worst: dict[Effect, int] = {}
    for check in facts.report.checks:
        if check.status in LOUD:
            effect, rank = OF_GROUP[check.group], LOUD.index(check.status)
            worst[effect] = min(rank, worst.get(effect, rank))
    ranks = sorted(set(worst.values()))
    return [[effect for effect in worst if worst[effect] == rank] for rank in ranks]


def is_exact(effect: Effect, facts: Facts) -> bool:
    """Return whether an exact signal shows the effect, and not only times, peaks and trends."""
    return any(
        check.failed and check.lane in ("exact", "invariant") and OF_GROUP[check.group] == effect
        for check in facts.report.checks
    )


def is_timed(finding: Finding) -> bool:
    """Return whether it rests on noisy times alone."""
    return finding.category is C.HOST or finding.sign in PHASES


def speed_failed(facts: Facts) -> bool:
    """Return whether a check with noise found the step slower."""
    return any(
        check.status == "fail" and check.lane != "exact" and OF_GROUP[check.group] == "cost"
        for check in facts.report.checks
    )


def can_cause(finding: Finding, effect: Effect, facts: Facts) -> bool:
    """Return whether the finding can cause the effect."""
    if effect == "learned":
        return finding.category not in (C.IO, C.MEMORY) and not is_timed(finding)
    if effect == "memory":
        return not is_timed(finding)
    return bool(finding.sign) or can_slow(finding.category, facts)


def can_slow(category: C, facts: Facts) -> bool:
    """Return whether the mechanism can slow a phase that grew; all can if no step is slower.

    If no phase grew, it must be able to slow more than one phase.
    """
    if facts.slower is None or category not in SLOWS:
        return True
    grown = {
        phase.phase
        for phase in (facts.phases.grown if facts.phases else ())
        if phase.share >= MAIN or phase.stands_out_in_cpu
    }
    return bool(grown.intersection(SLOWS[category])) if grown else category is not C.OPTIMIZER
