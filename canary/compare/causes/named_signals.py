"""Signals whose row in the table of signals names the cause of a difference."""

from __future__ import annotations

from collections.abc import Iterator

from canary.compare.diagnosis.evidence import Finding, evidence_of
from canary.compare.diagnosis.facts import Facts
from canary.compare.exact.signals import SIGNALS

STRENGTH = 0.6
"""Strength of such a signal without other evidence."""


def findings(facts: Facts) -> Iterator[Finding]:
    """One finding per such signal that differs in the first learning stage that differs."""
    for signal in SIGNALS:
        if signal.points_to is None or signal.stage != facts.entry:
            continue
        found = facts.difference(signal.stage, signal.name)
        if found is not None:
            yield Finding(
                signal.points_to, STRENGTH, f"{signal.means} differs", (evidence_of(found),)
            )
