"""Finds suspects for a regression and ranks them by their evidence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from canary.baseline.comparability import is_imported
from canary.compare.causes import CAUSES
from canary.compare.diagnosis.engine import ranked
from canary.compare.diagnosis.facts import Facts
from canary.compare.diagnosis.row import Row
from canary.compare.diagnosis.source_changes import SourceChanges
from canary.compare.diagnosis.suspects import Diagnosis, Evidence, RegressionCategory, Suspect
from canary.compare.report import Comparison, Records
from canary.record.types import RunRecord

LIKELY = 0.5
"""The first line names a suspect with at least this confidence."""
OF_AN_IMPORT = (
    "compare the commits, packages and launcher settings of both runs by hand",
    "canary exec -- COMMAND records the same loop with its exact signals",
)


def analyze_regression(
    report: Comparison,
    current: RunRecord | Records,
    baseline: RunRecord | Records,
    source: SourceChanges | None = None,
    causes: Sequence[Row] = CAUSES,
) -> Diagnosis:
    """Find the likely causes of what `report` found.

    Args:
        report: the comparison of both sides.
        current: the current record, or several.
        baseline: the baseline's record, or several.
        source: what the commits changed, if known.
        causes: the rows to check; pass `(*CAUSES, mine)` to add one.

    Returns:
        Suspects, the likeliest first; `unknown` if something got worse for no recorded reason. If
        nothing is known to be worse, only suspects with a confidence of at least `LIKELY`.
    """
    now, before = (
        [side] if isinstance(side, RunRecord) else list(side) for side in (current, baseline)
    )
    if not now or not before or report.verdict == "no-baseline":
        return Diagnosis()
    facts = Facts(report, now, before, source or SourceChanges())
    suspects = ranked(causes, facts)
    if not _is_worse(report):
        suspects = tuple(s for s in suspects if s.confidence >= LIKELY and _known(s))
    if report.verdict == "error" and now[-1].status == "completed":
        # For example, too few steps to time: advice on a slower step would be a guess.
        failed = any(check.failed for check in report.checks)
        suspects = tuple(s for s in suspects if failed and _known(s))
    if now[-1].status != "completed":
        log = f"read the end of log.txt in the folder of run {now[-1].run_id}"
        suspects = tuple(_advised(one, log) for one in suspects)
    elif any(map(is_imported, (*now, *before))):
        suspects = tuple(_advised(one, *OF_AN_IMPORT) for one in suspects)
    return Diagnosis(_summary(suspects), suspects)


def _advised(suspect: Suspect, *actions: str) -> Suspect:
    """Return an unknown suspect with this advice: nothing better is known."""
    return suspect if _known(suspect) else replace(suspect, suggested_actions=actions)


def _is_worse(report: Comparison) -> bool:
    """Whether something is known to be worse or different."""
    loud = any(
        check.failed or (check.status == "warn" and check.lane != "rule") for check in report.checks
    )
    return loud or report.verdict == "regression"


def _summary(suspects: Sequence[Suspect]) -> str:
    """Return one line: the first suspect, then the next two."""
    if not suspects:
        return ""
    first = suspects[0]
    others = suspects[1:3]
    # Suspects of different effects can be equally likely.
    how = "Less likely" if all(s.confidence < first.confidence for s in others) else "Also"
    tail = f" {how}: {', '.join(map(_named, others))}." if others else ""
    return f"{_named(first)}: {first.description}{tail}"


def _known(suspect: Suspect) -> bool:
    return suspect.category is not RegressionCategory.UNKNOWN


def _named(suspect: Suspect) -> str:
    if suspect.category is RegressionCategory.UNKNOWN:
        return "unknown"
    return f"{suspect.category} ({suspect.confidence:.0%})"


def format_suspects_markdown(diagnosis: Diagnosis | Sequence[Suspect]) -> str:
    """Render suspects as Markdown: a heading, the evidence and the suggested actions of each."""
    suspects = diagnosis.suspects if isinstance(diagnosis, Diagnosis) else tuple(diagnosis)
    if not suspects:
        return "No suspects: nothing got worse.\n"
    parts = []
    for place, suspect in enumerate(suspects, start=1):
        lines = [f"### {place}. {_named(suspect)}", "", suspect.description, ""]
        evidence = [f"{item.kind}: {item.message}" for item in suspect.evidence]
        for title, items in (
            ("Evidence", evidence),
            ("Suggested actions", suspect.suggested_actions),
        ):
            lines += [f"{title}:", "", *(f"- {item}" for item in items), ""] if items else []
        parts.append("\n".join(lines))
    return "\n".join(parts)


__all__ = [
    "Diagnosis",
    "Evidence",
    "RegressionCategory",
    "Suspect",
    "analyze_regression",
    "format_suspects_markdown",
]
