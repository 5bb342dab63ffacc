"""Presets on files that the frameworks' own writers made (see tests/data/imports/README.md)."""

from __future__ import annotations

import importlib.util
import json
import math
from pathlib import Path
from typing import Any

import pytest

from canary.compare.stats import compare_to_baseline
from canary.imports.preset import shipped, shipped_names
from canary.imports.reading import Asked, read_source
from canary.imports.record import import_run
from canary.record.curves import curve_of
from canary.report.render import render

DATA = Path(__file__).parents[2] / "data" / "imports"
CASES: dict[str, dict[str, Any]] = json.loads((DATA / "presets" / "expected.json").read_text())


def close(found: float, expected: float) -> bool:
    """Whether two values agree to TensorBoard's float32."""
    if not math.isfinite(expected):
        return str(found) == str(expected)
    return math.isclose(found, expected, rel_tol=1e-6, abs_tol=1e-12)


def test_each_preset_is_whole_and_has_a_file() -> None:
    assert [*CASES] == shipped_names()
    for name in CASES:
        preset = shipped(name)
        assert preset.framework == name
        assert all((preset.repository, preset.version, preset.files, preset.leaves, preset.notes))
        assert "loss" in preset.metrics


@pytest.mark.parametrize("name", CASES)
def test_a_preset_finds_what_the_frameworks_writer_wrote(name: str) -> None:
    case = CASES[name]
    source = DATA / "presets" / case["path"]
    found = read_source(Asked(source, None, name))
    assert found.format == case["format"]
    wrong = []
    for ours, (theirs, count, first, *last) in case["metrics"].items():
        source_name = found.mapped.names.get(ours, ours if ours == theirs else None)
        # A user's own name, as with Lightning, may be one that the preset knows.
        known = {source: mine for mine, source in found.mapped.names.items()}
        mine = ours if ours in found.mapped.names else known.get(ours, ours)
        values = curve_of(found.mapped.rows, mine).values
        if found.format != "console" and source_name != theirs:
            wrong.append(f"{ours} is {source_name}, not {theirs}")
        if len(values) != count or not close(values[0], float(first)):
            wrong.append(f"{ours} has {len(values)} values from {values[:1]}")
        elif not any(close(values[-1], float(value)) for value in last):
            wrong.append(f"{ours} ends at {values[-1]}, not {last}")
    assert wrong == []
    if found.format != "console":
        fitting = read_source(Asked(source)).preset
        own = shipped(name)
        assert fitting is None or fitting.framework in (own.framework, own.extends)


@pytest.mark.skipif(importlib.util.find_spec("wandb") is None, reason="wandb is not installed")
def test_an_offline_run_of_wandb_is_read() -> None:
    found = read_source(Asked(DATA / "wandb"))
    assert found.preset is not None
    assert found.preset.framework == "open-instruct"
    assert found.failed is None
    values = curve_of(found.mapped.rows, "loss").values
    assert len(values) == 8
    assert math.isclose(values[-1], 0.0049725523287129526)


def test_a_run_that_equals_its_baseline_is_no_regression(tmp_path: Path) -> None:
    asked = Asked(DATA / "presets" / CASES["trl"]["path"], preset="trl")
    runs = [import_run(asked, tmp_path, "trl")[0] for _ in range(4)]
    found = compare_to_baseline(runs[-1], runs[:-1], history=True)
    assert found.verdict in ("pass", "inconclusive")
    assert not found.failed_checks
    assert "| nan\\_steps |" in render(found, "markdown")
