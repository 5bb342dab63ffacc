"""Why it got worse: suspects from the facts of a comparison, ranked by how much tells for each."""

from __future__ import annotations

from collections.abc import Sequence

from canary.collect.record import RunRecord
from canary.compare.report import Comparison
from canary.compare.suspects import Diagnosis, Evidence, RegressionCategory, Suspect


def analyze_regression(
    report: Comparison,
    current: RunRecord | Sequence[RunRecord],
    baseline: RunRecord | Sequence[RunRecord],
) -> Diagnosis:
    """Who is behind what `report` found."""
    return Diagnosis()


def format_suspects_markdown(diagnosis: Diagnosis) -> str:
    """The suspects as Markdown."""
    return ""


__all__ = [
    "Diagnosis",
    "Evidence",
    "RegressionCategory",
    "Suspect",
    "analyze_regression",
    "format_suspects_markdown",
]
