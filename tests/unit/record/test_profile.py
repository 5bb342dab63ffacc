"""From a profiler's events to operators and a summary, for both generations of torch's names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from canary.record.profile import OPERATORS, Traced, operators_of, read_profile, summarise_profile
from canary.record.types import Profiler
from tests.unit.profiler_events import average, event, on_a_device

STEPS = (20, 21)


@pytest.mark.parametrize("old", [False, True], ids=["device_time", "cuda_time"])
def test_every_figure_of_a_device_is_read_under_both_generations_of_names(old: bool) -> None:
    averages, events = on_a_device(old)
    found = summarise_profile(Traced(STEPS, 20.0, averages, events))
    assert found["unmeasured"] == {}
    summary = Profiler(**found["summary"])
    assert summary.steps == [20, 21]
    assert summary.cuda_time_total_ms == 8.5, "kernels and copies, each once, no annotation"
    assert summary.self_cuda_time_total_ms == 9.0
    assert summary.cpu_time_total_ms == pytest.approx(6.2), "no annotation, no Python"
    assert summary.host_waits_ms == 5.0
    assert summary.kernel_launches == 7
    assert summary.device_idle_pct == pytest.approx(100 * (1 - 7.5 / 20)), "streams overlap"
    assert [row.name for row in summary.top_cuda_ops] == ["aten::mm", "aten::copy_"]
    assert summary.top_cuda_ops[0].model_dump() == {
        "name": "aten::mm",
        "self_cuda_time_ms": 6.0,
        "self_cpu_time_ms": 0.4,
        "count": 4,
    }
    assert summary.top_cpu_ops[0].name == "cudaDeviceSynchronize"
    kinds = {row["name"]: row["kind"] for row in found["operators"]}
    assert kinds["sm90_xmma_gemm"] == "kernel"
    assert kinds["cudaLaunchKernel"] == "runtime"
    assert kinds["train.py(12): step"] == "python"
    assert "[memory]" not in kinds
    assert kinds["Activity Buffer Request"] == "overhead"
    assert summary.operator_kinds == 7


@pytest.mark.parametrize(
    ("name", "kind", "launches"),
    [
        ("cudaLaunchCooperativeKernel", "runtime", 3),
        ("hipExtModuleLaunchKernel", "runtime", 3),
        ("cudaMemsetAsync", "runtime", 0),
        ("cudnn_attention", "operator", 0),
        ("Lazy Function Loading", "overhead", 0),
        ("<built-in function add>", "python", 0),
    ],
)
def test_names_of_the_run_time_are_told_from_operators(name: str, kind: str, launches: int) -> None:
    kernel = event("gemm", 0, 5, on="DeviceType.CUDA")
    found = summarise_profile(Traced((1,), 1.0, [average(name, 3, self_cpu=1.0)], [kernel]))
    assert found["operators"][0]["kind"] == kind
    assert found["summary"]["kernel_launches"] == launches


def test_a_row_without_device_times_is_an_error_and_never_an_empty_table() -> None:
    row = average("aten::mm", self_cpu=1.0)
    del row.self_device_time_total
    with pytest.raises(AttributeError, match="self_device_time_total, self_cuda_time_total"):
        operators_of([row])


def test_a_cpu_says_why_the_devices_figures_are_missing() -> None:
    traced = Traced(
        (5,),
        10.0,
        [average("aten::mm", 2, self_cpu=4000.0)],
        [event("aten::mm", 0, 300)],
        no_device="the steps ran on the CPU",
    )
    found = summarise_profile(traced)
    summary = Profiler(**found["summary"])
    assert summary.cpu_time_total_ms == 4.0
    assert summary.cuda_time_total_ms == summary.self_cuda_time_total_ms == 0.0
    share = 100 * summary.cuda_time_total_ms / (summary.cpu_time_total_ms + 1e-9)
    assert share == 0.0, "arithmetic on them holds"
    assert set(found["unmeasured"].values()) == {"the steps ran on the CPU"}
    missing = {
        f"profiler.{key}"
        for key in Profiler.model_fields
        if getattr(summary, key) in (None, 0.0, []) and "path" not in key
    }
    assert missing == set(found["unmeasured"])


def test_a_device_whose_events_do_not_come_is_no_idle_device() -> None:
    found = summarise_profile(Traced((5,), 10.0, [average("aten::mm", self_cpu=4.0)], []))
    assert found["summary"].get("device_idle_pct") is None
    assert "CUPTI" in found["unmeasured"]["profiler.device_idle_pct"]


def test_a_table_that_is_broken_or_of_another_version_is_none(tmp_path: Path) -> None:
    assert read_profile(tmp_path) is None
    file = tmp_path / OPERATORS
    for text in ("{", "[]", json.dumps({"schema_version": 99})):
        file.write_text(text)
        assert read_profile(tmp_path) is None, text
    file.write_text(json.dumps({"schema_version": 1, "summary": {}}))
    assert read_profile(tmp_path) == {"schema_version": 1, "summary": {}}
