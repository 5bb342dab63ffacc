"""Write and read the JSON document of a comparison: one object of strict JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from canary.compare.diagnosis.suspects import Diagnosis
from canary.compare.report import (
    Check,
    Comparison,
    Difference,
    KeyChange,
    Places,
    RaisedAlert,
    Side,
)
from canary.errors import RecordError
from canary.record import jsonio
from canary.record.folder import read_document
from canary.record.jsonio import number
from canary.report.escape import NOT_PRINTED

DOCUMENT_VERSION = 1
LARGEST = 8 << 20
"""Bytes of a comparison; ours have some hundred thousand."""


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
        "places": asdict(found.places),
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


CHECKS: TypeAdapter[tuple[Check, ...]] = TypeAdapter(tuple[Check, ...])
DIFFERENCES: TypeAdapter[tuple[Difference, ...]] = TypeAdapter(tuple[Difference, ...])
CHANGES: TypeAdapter[tuple[KeyChange, ...]] = TypeAdapter(tuple[KeyChange, ...])
ALERTS: TypeAdapter[tuple[RaisedAlert, ...]] = TypeAdapter(tuple[RaisedAlert, ...])
DIAGNOSIS: TypeAdapter[Diagnosis] = TypeAdapter(Diagnosis)
PLACES: TypeAdapter[Places] = TypeAdapter(Places)
SIDE: TypeAdapter[Side] = TypeAdapter(Side)
COMPARISON: TypeAdapter[Comparison] = TypeAdapter(Comparison)


def load_comparison(path: Path) -> Comparison:
    """Read a comparison that `--format json` printed, or that `ab` or the gate wrote.

    Raises:
        InputError: the file is missing.
        RecordError: the file is not a comparison.
    """
    file = path / "comparison.json" if path.is_dir() else path
    hint = "write one with `canary compare ... --format json -o FILE`"
    document = read_document(file, "comparison", hint, LARGEST)
    try:
        jsonio.check_bounds(document)
    except ValueError as error:
        raise RecordError(f"{file} is not a comparison: it {error}") from error
    if not isinstance(document, dict) or document.get("schema_version") != DOCUMENT_VERSION:
        raise RecordError(f"{file} is not a comparison that this version can read")
    try:
        return comparison_from(document)
    except (ValidationError, KeyError, TypeError, AttributeError) as error:
        where = error.errors()[0]["loc"] if isinstance(error, ValidationError) else error
        raise RecordError(f"{file} is not a comparison: {where}") from error


def comparison_from(document: dict[str, Any]) -> Comparison:
    """Return the comparison in a document; ValidationError or KeyError if it holds none."""
    first = document["first_difference"]
    differences = [_without(row, "message") for row in document["differences"]]
    return COMPARISON.validate_python(
        {
            "verdict": document["verdict"],
            "first_line": document["first_line"],
            "checks": CHECKS.validate_python([_numbers(row) for row in document["checks"]]),
            "first_difference": None if first is None else _without(first, "message"),
            "differences": DIFFERENCES.validate_python(differences),
            "config_changes": CHANGES.validate_python(document["config_differences"]),
            "environment_changes": CHANGES.validate_python(document["environment_differences"]),
            "baseline": SIDE.validate_python(document["baseline"]),
            "current": SIDE.validate_python(document["current"]),
            "tier": document["tier"],
            "accepted": document["accepted"],
            "notes": document["notes"],
            "alerts": ALERTS.validate_python([_numbers(row) for row in document.get("alerts", [])]),
            "places": PLACES.validate_python(document.get("places") or {}),
            "diagnosis": DIAGNOSIS.validate_python(
                _diagnosis_from(document.get("diagnosis") or {})
            ),
        }
    )


def _without(row: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != key}


def _diagnosis_from(row: dict[str, Any]) -> dict[str, Any]:
    """Return the diagnosis as today's model reads it; missing keys get its defaults."""
    suspects = [
        {**suspect, "evidence": [_numbers(item) for item in suspect["evidence"]]}
        for suspect in row.get("suspects", [])
    ]
    return {**row, "suspects": suspects}


def _numbers(row: dict[str, Any]) -> dict[str, Any]:
    """Return the row with non-finite numbers, which JSON holds as strings, as numbers again."""
    read = {name: number(value) for name, value in row.items()}
    if isinstance(row.get("interval"), list):
        read["interval"] = [number(end) for end in row["interval"]]
    return read
