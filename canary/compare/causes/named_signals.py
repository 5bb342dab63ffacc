"""Signals whose row of the table names the cause that a difference tells for."""

from __future__ import annotations

from collections.abc import Iterator

from canary.compare.diagnosis.evidence import Finding, evidence_of
from canary.compare.diagnosis.facts import Facts
from canary.compare.exact.signals import SIGNALS

STRENGTH = 0.6
"""Of a signal alone, that nothing else was asked about."""


def findings(facts: Facts) -> Iterator[Finding]:
    """One for each such signal that differs where the difference came in."""
    for signal in SIGNALS:
        if signal.points_to is None or signal.stage != facts.entry:
            continue
        found = facts.difference(signal.stage, signal.name)
        if found is not None:
            yield Finding(
                signal.points_to, STRENGTH, f"{signal.means} differs", (evidence_of(found),)
            )
