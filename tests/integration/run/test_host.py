"""What runs tell of their host, on a real training."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.conftest import run_config, settings

pytestmark = pytest.mark.train


def test_a_canary_tells_all_of_its_host(tmp_path: Path) -> None:
    short = {"look_steps": 0, "max_steps": 40, "metrics_warmup_steps": 4, "dataset_size": 160}
    record = run_config(tmp_path, settings("sft", **short)).record()
    host = record.host
    for name, value in host.model_dump().items():
        assert value is not None or name == "run_delay", name
    assert host.cpu_seconds_per_step is not None
    assert host.main_cpu_seconds_per_step is not None
    assert 0 < host.main_cpu_seconds_per_step <= 1.01 * host.cpu_seconds_per_step
    assert host.cpu_seconds_per_step < 1.1 * record.perf.step_time.mean
    (launch,) = record.launches
    assert sum(launch.phases_cpu.values()) == pytest.approx(host.cpu_seconds_per_step, rel=1e-6)
    assert launch.phases_cpu["backward"] > launch.phases_cpu["data"]
    assert launch.cpu_s_per_step == pytest.approx(host.cpu_seconds_per_step, rel=0.15)
    if launch.on_core_step_time_s is not None:
        assert 0 < launch.on_core_step_time_s <= record.perf.step_time.mean
