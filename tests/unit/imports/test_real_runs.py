"""Frameworks that really trained (see tests/data/imports/presets/README.md), up to a comment."""

from __future__ import annotations

from pathlib import Path

import pytest

from canary.compare.stats import compare_to_baseline
from canary.imports.reading import Asked
from canary.imports.record import import_run
from canary.record.types import RunRecord
from canary.report.render import render

DATA = Path(__file__).parents[2] / "data" / "imports" / "presets"
RAN = [
    ("trl", "grpo/trainer_state.json"),
    ("lightning", "csv/lightning_logs/version_0/metrics.csv"),
    ("axolotl", "tensorboard"),
    ("llama-factory", "trainer_log.jsonl"),
    ("transformers", "trainer_state.json"),
]


def recorded(name: str, source: Path, folder: Path) -> RunRecord:
    return import_run(Asked(source, preset=name), folder, name)[0]


@pytest.mark.parametrize(("name", "path"), RAN)
def test_a_run_that_equals_its_baseline_is_no_regression(
    name: str, path: str, tmp_path: Path
) -> None:
    runs = [recorded(name, DATA / name / path, tmp_path) for _ in range(4)]
    found = compare_to_baseline(runs[-1], runs[:-1], history=True)
    assert found.verdict in ("pass", "inconclusive")
    assert not found.failed_checks
    assert found.check("final_loss").status in ("pass", "skip")  # GRPO's loss is near 0
    comment = render(found, "markdown")
    assert "| nan\\_steps |" in comment
    assert "Traceback" not in comment


def test_a_worse_loss_of_lightning_is_a_regression(tmp_path: Path) -> None:
    name, path = RAN[1]
    good = DATA / name / path
    header, *rows = good.read_text(encoding="utf-8").splitlines()
    place = header.split(",").index("train_loss_step")
    worse = tmp_path / "metrics.csv"
    cells = [row.split(",") for row in rows]
    for row in cells:
        row[place] = str(2 * float(row[place])) if row[place] else ""
    worse.write_text("\n".join([header, *map(",".join, cells)]) + "\n", encoding="utf-8")
    baseline = [recorded(name, good, tmp_path) for _ in range(3)]
    found = compare_to_baseline(recorded(name, worse, tmp_path), baseline, history=True)
    assert found.verdict == "regression"
