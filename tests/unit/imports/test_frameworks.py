"""Presets on files that the frameworks' own writers made (see tests/data/imports/presets)."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from canary.imports.reading import Asked, Imported, read_source
from canary.record.curves import curve_of

DATA = Path(__file__).parents[2] / "data" / "imports"
CASES = [
    pytest.param(folder, case, id=f"{folder.name}-{case['path']}")
    for folder in sorted((DATA / "presets").iterdir())
    if (folder / "expected.json").exists()
    for case in json.loads((folder / "expected.json").read_text(encoding="utf-8"))
]


def wrong_in(case: dict[str, Any], imported: Imported) -> list[str]:
    """Return what a reader found otherwise than a file's writer says."""
    rows = imported.mapped.rows
    wrong = []
    if imported.format != case["format"]:
        wrong.append(f"format {imported.format}")
    for ours, expected in case["metrics"].items():
        curve = curve_of(rows, ours)
        name = imported.mapped.names.get(ours)
        if name != expected["name"]:
            wrong.append(f"{ours} is {name}, not {expected['name']}")
        elif len(curve.values) != expected["count"]:
            wrong.append(f"{ours} has {len(curve.values)} values, not {expected['count']}")
        else:
            for place, value in ((0, expected["first"]), (-1, expected["last"])):
                if not close(curve.values[place], value):
                    wrong.append(f"{ours}[{place}] is {curve.values[place]}, not {value}")
    return wrong


def close(found: float, expected: Any) -> bool:
    """Whether two values agree to TensorBoard's float32."""
    value = float(expected)
    if not math.isfinite(value):
        return math.isnan(found) == math.isnan(value) and str(found) == str(value)
    return math.isclose(found, value, rel_tol=1e-6, abs_tol=1e-12)


@pytest.mark.parametrize(("folder", "case"), CASES)
def test_the_named_preset_finds_what_the_frameworks_writer_wrote(
    folder: Path, case: dict[str, Any]
) -> None:
    imported = read_source(Asked(folder / case["path"], case["format"], folder.name))
    assert wrong_in(case, imported) == []


@pytest.mark.parametrize(("folder", "case"), CASES)
def test_format_and_preset_are_found_without_being_named(
    folder: Path, case: dict[str, Any]
) -> None:
    imported = read_source(Asked(folder / case["path"]))
    assert imported.format == case["format"]
    assert imported.preset is None or imported.preset.framework == folder.name
