"""Presets on files that the frameworks' own writers made (see tests/data/imports/presets)."""

from __future__ import annotations

import importlib.util
import json
import math
from pathlib import Path
from typing import Any

import pytest

from canary.errors import InputError
from canary.imports.preset import shipped
from canary.imports.reading import Asked, Imported, read_source
from canary.record.curves import curve_of

DATA = Path(__file__).parents[2] / "data" / "imports"
LEFT_OUT = ("device_memory_bytes",)
"""NeMo-RL writes it against seconds."""
PANEL = "grpo_console.log"
"""open-instruct's panel rounds to two decimals, so its preset does not read it."""
needs_wandb = pytest.mark.skipif(
    importlib.util.find_spec("wandb") is None, reason="wandb is not installed"
)
CASES = [
    pytest.param(folder, case, id=f"{folder.name}-{case['path']}")
    for folder in sorted((DATA / "presets").iterdir())
    if (folder / "expected.json").exists()
    for case in json.loads((folder / "expected.json").read_text(encoding="utf-8"))
    if case["path"] != PANEL
]


def wrong_in(case: dict[str, Any], imported: Imported) -> list[str]:
    """Return what a reader found otherwise than a file's writer says."""
    rows = imported.mapped.rows
    wrong = []
    if imported.format != case["format"]:
        wrong.append(f"format {imported.format}")
    for ours, expected in case["metrics"].items():
        if ours in LEFT_OUT:
            continue
        name = imported.mapped.names.get(ours)
        if name is None and ours == expected["name"]:  # a user's own name, as with Lightning
            known = {source: mine for mine, source in imported.mapped.names.items()}
            curve = curve_of(rows, known.get(ours, ours))
            name = ours
        else:
            curve = curve_of(rows, ours)
        if name is None or (name != expected["name"] and case["format"] != "console"):
            wrong.append(f"{ours} is {name}, not {expected['name']}")
        elif len(curve.values) != expected["count"]:
            wrong.append(f"{ours} has {len(curve.values)} values, not {expected['count']}")
        else:
            last = expected.get("last_any_of", [expected["last"]])
            for place, values in ((0, [expected["first"]]), (-1, last)):
                if not any(close(curve.values[place], value) for value in values):
                    wrong.append(f"{ours}[{place}] is {curve.values[place]}, not {values}")
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
    own = shipped(folder.name)
    assert imported.preset is None or imported.preset.framework in (own.framework, own.extends)


STORES = [
    pytest.param(
        folder,
        case,
        id=folder.name,
        marks=[needs_wandb] if case["format"] == "wandb" else [],
    )
    for folder in sorted((DATA / "stores").iterdir())
    for case in json.loads((folder / "expected.json").read_text(encoding="utf-8"))
]


@pytest.mark.parametrize(("folder", "case"), STORES)
def test_a_local_store_is_read_with_the_preset_found(folder: Path, case: dict[str, Any]) -> None:
    imported = read_source(Asked(folder / case["path"]))
    assert imported.preset is not None
    assert imported.preset.framework == case["preset"]
    assert wrong_in(case, imported) == []


def test_a_panel_of_rounded_values_is_refused() -> None:
    with pytest.raises(InputError, match="no metric"):
        read_source(Asked(DATA / "presets" / "open-instruct" / PANEL, "console", "open-instruct"))
