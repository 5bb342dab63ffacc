"""Environment: another machine or other packages, if no mechanism explains the change."""

from __future__ import annotations

from collections.abc import Iterator

from canary.compare.diagnosis.evidence import Finding
from canary.compare.diagnosis.facts import Facts
from canary.compare.diagnosis.suspects import Evidence
from canary.compare.diagnosis.suspects import RegressionCategory as C
from canary.compare.exact.changes import shown
from canary.compare.report import KeyChange


def findings(facts: Facts) -> Iterator[Finding]:
    """Environment changes: a full cause of a slower step, only a fallback if learning changed."""
    changes = [c for c in facts.report.environment_changes if not c.cosmetic]
    if not changes:
        return
    learned = facts.entry is not None
    if not learned and facts.slower is None and not facts.report.failed_checks:
        return
    timed = not learned and facts.slower is not None
    yield Finding(
        C.ENVIRONMENT,
        0.7 if timed else 0.45,
        f"{changes[0].key} {shown(changes[0].baseline)} -> {shown(changes[0].current)}"
        + (f", and {len(changes) - 1} more in the environment" * (len(changes) > 1)),
        environment_evidence(changes),
        ("run the baseline in the new environment: a remaining difference comes from the code",),
    )


def environment_evidence(changes: list[KeyChange]) -> tuple[Evidence, ...]:
    """Return the first few changes as evidence."""
    return tuple(
        Evidence(
            "environment",
            f"{c.key} {shown(c.baseline)} -> {shown(c.current)}",
            shown(c.baseline),
            shown(c.current),
        )
        for c in changes[:4]
    )
