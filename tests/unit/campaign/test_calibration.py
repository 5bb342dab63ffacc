"""The noise model of equal records: what it knows of CPU time, and where it knows nothing."""

from __future__ import annotations

from dataclasses import replace
from html import escape

import pytest

from canary.campaign.calibrate import calibration, calibration_text, table_rows
from canary.compare.stats import compare_to_baseline
from canary.record.types import RunRecord
from tests.unit.comparing import altered, on_gpu, record, scatter
from tests.unit.gating import imported


def equal_runs(cpu_sd: float = 0.03) -> list[RunRecord]:
    walls, work = scatter(10, 0.4), scatter(10, cpu_sd)
    return [
        record(number, 0.1 * wall, cpu_s=0.05 * cpu)
        for number, (wall, cpu) in enumerate(zip(walls, work, strict=True))
    ]


def test_the_noise_of_cpu_time_is_measured_beside_that_of_the_clock() -> None:
    made = calibration(equal_runs())
    assert made.model.metrics["step_time_median"].run_sd == pytest.approx(0.4, rel=0.01)
    assert made.model.metrics["cpu_time"].run_sd == pytest.approx(0.03, rel=0.01)
    assert made.model.metrics["on_core_step_time"].run_sd == pytest.approx(0.03, rel=0.01)
    shown = made.model.detectable_pct
    assert shown["cpu_time"]["3"] < 20 < shown["step_time_median"]["3"]
    assert "on_core_step_time" not in shown, "it is no gate"
    text = calibration_text(made)
    assert "CPU time per step         50.0 ms    3.00%" in text
    assert "step time, free core" in text
    shown_inline = made._repr_html_()
    assert all(escape(cell) in shown_inline for row in table_rows(made) for cell in row)


def test_signals_that_differ_between_equal_runs_are_named() -> None:
    made = calibration(equal_runs())
    noisy = made.model.model_copy(update={"inexact": {"batches.<script>": 1.0}})
    shown = replace(made, model=noisy, looked=True)
    assert "batches.<script>" in calibration_text(shown)
    assert "batches.&lt;script&gt;" in shown._repr_html_()
    assert "batches.<script>" not in shown._repr_html_()


def test_one_run_beside_one_is_decided_by_the_model_on_a_busy_machine() -> None:
    noise = calibration(equal_runs(0.01)).model
    found = compare_to_baseline(record(100, 0.2, cpu_s=0.05), record(0, cpu_s=0.05), noise=noise)
    assert found.check("cpu_time").status == "pass"
    assert found.check("step_time_median").status == "skip"


def test_devices_and_spinning_threads_have_no_noise_of_cpu_time() -> None:
    threads = [altered(run, "env", "device", "threads", to=2) for run in equal_runs()]
    assert "cpu_time" not in calibration(threads).model.metrics
    gpus = [on_gpu(altered(run, "launches", 0, "cpu_s_per_step", to=None)) for run in equal_runs()]
    assert "cpu_time" not in calibration(gpus).model.metrics


def test_imported_runs_are_not_said_to_have_equal_exact_signals() -> None:
    assert "every exact signal was equal" in calibration_text(calibration(equal_runs()))
    text = calibration_text(calibration([imported(run) for run in equal_runs()]))
    assert "every exact signal was equal" not in text
    assert "no exact signals were recorded" in text
