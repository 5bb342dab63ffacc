"""Dataloader: the wait for batches."""

from __future__ import annotations

from collections.abc import Iterator

from canary.compare.diagnosis.evidence import Finding, evidence_of_phase
from canary.compare.diagnosis.facts import Facts
from canary.compare.diagnosis.suspects import RegressionCategory as C


def findings(facts: Facts) -> Iterator[Finding]:
    """The data phase grew by more than a slower machine explains, for the same batches."""
    phase = facts.grown_phase("data")
    if phase is None:
        return
    same = facts.entry not in ("data", "batches")
    largest = bool(facts.phases and facts.phases.grown[0].phase == "data")
    strength = 0.93 if largest else 0.6
    yield Finding(
        C.DATALOADER,
        strength if same else 0.3,
        "training waits longer for its batches",
        (evidence_of_phase(phase),),
        (
            "profile the collator and the dataset's __getitem__; move slow work before training",
            "raise dataloader_num_workers",
        ),
        sign="data",
    )
