"""The JSON document of a comparison: one object of strict JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from canary.compare.diagnosis.suspects import Diagnosis
from canary.compare.report import Check, Comparison, Difference, KeyChange, Side
from canary.record import jsonio
from canary.report.escape import NOT_PRINTED

DOCUMENT_VERSION = 1


def document(found: Comparison) -> dict[str, Any]:
    """Return the comparison as plain data."""
    return {
        "schema_version": DOCUMENT_VERSION,
        "verdict": found.verdict,
        "passed": found.passed,
        "accepted": found.accepted,
        "first_line": found.first_line,
        "tier": found.tier,
        "baseline": _side(found.baseline),
        "current": _side(found.current),
        "checks": [_check(check) for check in found.checks],
        "first_difference": _difference(found.first_difference),
        "differences": [_difference(difference) for difference in found.differences],
        "config_differences": _changes(found.config_changes),
        "environment_differences": _changes(found.environment_changes),
        "notes": list(found.notes),
        "alerts": [asdict(alert) for alert in found.alerts],
        "diagnosis": _diagnosis(found.diagnosis),
    }


def json_text(found: Comparison) -> str:
    """Return the document as text that ends with one line break."""
    return json_lines(document(found))


def json_lines(value: Any) -> str:
    """Return strict JSON on several lines; characters unsafe for a terminal are escaped."""
    text = jsonio.dumps(value, indent=1) + "\n"
    return NOT_PRINTED.sub(lambda found: json.dumps(found[0])[1:-1], text)


def _side(side: Side) -> dict[str, Any]:
    return {**asdict(side), "run_ids": list(side.run_ids), "summary": dict(side.summary)}


def _check(check: Check) -> dict[str, Any]:
    fields = asdict(check)
    fields["interval"] = None if check.interval is None else list(check.interval)
    return fields


def _difference(difference: Difference | None) -> dict[str, Any] | None:
    if difference is None:
        return None
    return {"order": difference.order, **asdict(difference), "message": difference.sentence()}


def _diagnosis(diagnosis: Diagnosis) -> dict[str, Any]:
    return {
        "summary": diagnosis.summary,
        "suspects": [
            {
                "category": suspect.category.value,
                "confidence": suspect.confidence,
                "description": suspect.description,
                "evidence": [asdict(item) for item in suspect.evidence],
                "suggested_actions": list(suspect.suggested_actions),
            }
            for suspect in diagnosis.suspects
        ],
    }


def _changes(changes: Sequence[KeyChange]) -> list[dict[str, Any]]:
    return [asdict(change) for change in changes]
