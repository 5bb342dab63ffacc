"""Comparing with what lies in a folder, however much that is, and in how much time."""

from __future__ import annotations

from pathlib import Path

import pytest

from canary.baseline.history import save
from canary.compare.paths import Request, compared_paths
from canary.compare.report import Comparison
from tests.unit.comparing import altered, crashed, record, scatter, write


def filled(root: Path, count: int) -> Path:
    for place, factor in enumerate(scatter(count, 0.005)):
        save(root, record(place, 0.1 * factor))
    return root


def compared(folder: Path, median_s: float = 0.1, number: int = 9000) -> Comparison:
    now = write(folder.parent / "now.json", record(number, median_s))
    return compared_paths(Request((now,), (folder,))).found


def test_a_history_gates_from_its_third_run_on(tmp_path: Path) -> None:
    root = filled(tmp_path / "history", 2)
    assert compared(root).verdict == "no-baseline"
    save(root, record(5))
    assert compared(root).verdict != "no-baseline"


def test_a_history_passes_its_like_and_fails_what_is_slower(tmp_path: Path) -> None:
    root = filled(tmp_path / "history", 20)
    assert compared(root).verdict == "pass"
    assert compared(root).tier == "smoke"
    assert compared(root, 0.105).verdict == "pass"
    slow = compared(root, 0.13)
    assert slow.verdict == "regression"
    assert slow.check("step_time_median").status == "fail"


def test_creep_is_measured_from_the_start_of_the_level(tmp_path: Path) -> None:
    root = tmp_path / "history"
    for place, factor in enumerate(scatter(10, 0.003)):
        save(root, record(place, 0.08 * factor))
    for place, factor in enumerate(scatter(20, 0.003)):
        save(root, record(100 + place, 0.1 * factor))
    found = compared(root)
    assert found.check("step_time_median").status == "pass"
    assert found.check("step_time_drift").delta_pct == pytest.approx(25, abs=1)


def run_folders(root: Path, count: int) -> Path:
    """As `canary run` leaves them."""
    for place, factor in enumerate(scatter(count, 0.005)):
        run_id = f"20260101-{place:06d}-sft_smoke-abcd"
        write(root / run_id / "metrics.json", record(place, 0.1 * factor, run_id=run_id))
    return root


def test_a_folder_of_runs_is_a_history_too(tmp_path: Path) -> None:
    root = run_folders(tmp_path / "out", 24)
    failed = crashed(record(200, run_id="20260102-000000-sft_smoke-abcd"))
    write(root / failed.run_id / "metrics.json", failed)
    other = record(300, kind="dpo", run_id="20260103-000000-dpo_smoke-abcd")
    write(root / other.run_id / "metrics.json", other)
    found = compared(root)
    assert found.verdict == "pass"
    assert len(found.baseline.run_ids) == 20
    assert found.baseline.run_ids[-1] == "20260101-000023-sft_smoke-abcd"


def test_a_run_is_left_out_of_its_own_folder_of_runs(tmp_path: Path) -> None:
    root = run_folders(tmp_path / "out", 5)
    newest = root / "20260101-000004-sft_smoke-abcd"
    found = compared_paths(Request((newest,), (root,))).found
    assert len(found.baseline.run_ids) == 4


def test_a_broken_record_among_the_runs_is_an_error(tmp_path: Path) -> None:
    root = run_folders(tmp_path / "out", 5)
    broken = root / "20260101-000002-sft_smoke-abcd" / "metrics.json"
    broken.write_text("{")
    found = compared(root)
    assert found.verdict == "error"
    assert str(broken) in found.first_line


def test_thresholds_are_the_baselines_and_a_candidate_cannot_loosen_them(tmp_path: Path) -> None:
    root = filled(tmp_path / "history", 20)
    loose = altered(record(9000, 0.13), "config", "thresholds", to={"base_tier": "default"})
    loose.config["thresholds"]["max_step_time_increase_pct"] = 90.0
    now = write(tmp_path / "now.json", loose)
    found = compared_paths(Request((now,), (root,))).found
    assert found.check("step_time_median").threshold == pytest.approx(15.0)
    assert found.verdict == "regression"
    asked = compared_paths(Request((now,), (root,), tier="nightly")).found
    assert asked.check("step_time_median").threshold == pytest.approx(5.0)
    assert asked.tier == "nightly"
