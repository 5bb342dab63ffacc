"""`canary calibrate` and `canary demo` through the real command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from canary.baseline.history import drawer, select
from canary.compare.paths import Request, compared_paths
from canary.compare.timing.noise import NoiseModel, load_noise
from canary.record.folder import load_record
from canary.record.types import RunRecord
from tests.integration.conftest import Finished, canary, settings, write_config

pytestmark = [pytest.mark.train, pytest.mark.slow]


@pytest.fixture(scope="module")
def calibrated(tmp_path_factory: pytest.TempPathFactory) -> tuple[Finished, Path]:
    """Four short runs, the noise model in a history."""
    folder = tmp_path_factory.mktemp("calibrate")
    path = write_config(
        folder, settings("sft", max_steps=10, metrics_warmup_steps=2, dataset_size=60)
    )
    where = ("--output-dir", str(folder / "runs"), "--save-to", str(folder / "history"))
    finished = canary("calibrate", str(path), "-n", "4", *where, "-o", str(folder / "noise.json"))
    return finished, folder


def records(folder: Path) -> list[RunRecord]:
    return [load_record(path.parent) for path in sorted((folder / "runs").glob("*/metrics.json"))]


def model(folder: Path) -> NoiseModel:
    return load_noise(folder / "noise.json")


def test_calibrate_writes_the_noise_of_equal_runs(calibrated: tuple[Finished, Path]) -> None:
    finished, folder = calibrated
    assert finished.code == 0, finished.err
    found = model(folder)
    assert found.runs == 4
    assert found.canary == "sft"
    assert found.metrics["step_time_median"].run_sd > 0
    assert found.metrics["step_time_median"].run_df == 3
    assert found.metrics["cpu_time"].run_sd > 0
    assert found.inexact == {}
    shown = found.detectable_pct["step_time_median"]
    assert shown["1"] > shown["3"] > shown["5"] > shown["8"] > 0


def test_a_history_finds_its_noise_model_by_itself(calibrated: tuple[Finished, Path]) -> None:
    _, folder = calibrated
    found = records(folder)
    place = drawer(folder / "history", found[0])
    assert load_noise(place / "noise.json") == model(folder)
    stored = [path.parent for path in sorted((folder / "runs").glob("*/metrics.json"))]
    for path in stored[:3]:
        assert canary("save-baseline", str(path), str(folder / "history")).code == 0
    assert select(folder / "history", found[3]).noise_file == place / "noise.json"
    compared = compared_paths(Request((stored[3],), (folder / "history",))).found
    sources = ("noise model of 4 runs", "measured in these runs")
    assert compared.check("step_time_median").noise in sources


def test_too_few_runs_are_refused(tmp_path: Path) -> None:
    finished = canary("calibrate", "-n", "2", "--output-dir", str(tmp_path))
    assert finished.code == 2
    assert "-n must be 4 or more" in finished.err
    assert not any(tmp_path.iterdir())


def test_a_run_that_fails_ends_the_calibration(tmp_path: Path) -> None:
    path = write_config(tmp_path, settings("sft", timeout=1))
    finished = canary("calibrate", str(path), "-n", "4", "--output-dir", str(tmp_path / "runs"))
    assert finished.code == 4
    assert "exceeded its time limit" in finished.err.splitlines()[-1]
    assert finished.out == ""


def test_the_demo_passes_what_is_healthy_and_catches_what_a_loss_gate_lets_through(
    tmp_path: Path,
) -> None:
    finished = canary("demo", "-o", str(tmp_path), timeout=570)
    assert finished.code == 0, finished.err
    (folder,) = tmp_path.iterdir()
    healthy = (folder / "head" / "comparison.txt").read_text()
    assert healthy.startswith(("Pass:", "Learns the same:", "Inconclusive:"))
    assert "Regression: 0 EOS among 564 label tokens" in finished.out
    lines = ("was: pad = tokenizer.pad_token_id", "now: pad = tokenizer.eos_token_id")
    place = "\n    ".join(("train.py:26 in collate, the only changed code", *lines))
    assert f"  {place}\n" in finished.out
    broken = (folder / "pad_with_eos" / "comparison.txt").read_text()
    assert "What differs, first to last\n  batches: label tokens 588 -> 564" in broken
    gate = next(line for line in finished.out.splitlines() if line.startswith("A gate on the loss"))
    assert gate.endswith("and passes.")
    assert "== What next" in finished.out
