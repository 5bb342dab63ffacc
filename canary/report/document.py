"""Write and read the JSON document of a comparison: one object of strict JSON."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from canary.compare.report import Comparison, Difference
from canary.errors import RecordError
from canary.record import jsonio
from canary.record.folder import read_document
from canary.record.jsonio import number
from canary.report.bisect_hint import Hint
from canary.report.escape import NOT_PRINTED

DOCUMENT_VERSION = 1
LARGEST = 8 << 20
"""Bytes of a comparison; ours have some hundred thousand."""


FIELDS = (
    "verdict",
    "accepted",
    "first_line",
    "tier",
    "baseline",
    "current",
    "checks",
    "first_difference",
    "differences",
    "config_changes",
    "environment_changes",
    "notes",
    "alerts",
    "places",
    "diagnosis",
)
KEYS = {name: name.replace("_changes", "_differences") for name in FIELDS}
"""The document's key of each field of a comparison."""
COMPARISON: TypeAdapter[Comparison] = TypeAdapter(Comparison)


def document(found: Comparison, hint: Hint | None = None) -> dict[str, Any]:
    """Return the comparison as plain data. `hint`: how to find the culprit."""
    whole = asdict(found)
    return {
        "schema_version": DOCUMENT_VERSION,
        "verdict": found.verdict,
        "passed": found.passed,
        **{key: whole[name] for name, key in KEYS.items()},
        "first_difference": _difference(found.first_difference),
        "differences": [_difference(difference) for difference in found.differences],
        "bisect": None if hint is None else asdict(hint),
    }


def json_text(found: Comparison, hint: Hint | None = None) -> str:
    """Return the document as text that ends with one line break."""
    return json_lines(document(found, hint))


def json_lines(value: Any) -> str:
    """Return strict JSON on several lines; characters unsafe for a terminal are escaped."""
    text = jsonio.dumps(value, indent=1) + "\n"
    return NOT_PRINTED.sub(lambda found: json.dumps(found[0])[1:-1], text)


def _difference(difference: Difference | None) -> dict[str, Any] | None:
    if difference is None:
        return None
    return {"order": difference.order, **asdict(difference), "message": difference.sentence()}


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
    parts = {name: document[key] for name, key in KEYS.items()}
    for rows in (parts["checks"], *(each["evidence"] for each in parts["diagnosis"]["suspects"])):
        for row in rows:
            # In JSON a number that is not finite is a string, as names are.
            row |= {side: number(row.get(side)) for side in ("baseline", "current")}
    return COMPARISON.validate_python(parts)
