"""What runs tell of their host, and the bottlenecks named from it, on real trainings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from canary.record.types import RunRecord
from tests.integration.conftest import Finished, canary, settings, write_config
from tests.planting import plant

pytestmark = pytest.mark.train

SHORT = {"look_steps": 0, "max_steps": 24, "metrics_warmup_steps": 4, "dataset_size": 96}
LONG = {"max_steps": 80, "dataset_size": 320}
"""More than a second of steps on a fast machine, so that Python's lock is sampled."""
PYTHON_BESIDE = """
import threading
def beside():
    while True:
        sum(range(1000))
threading.Thread(target=beside, daemon=True).start()
"""
SLOW_COLLATOR = """
import time
original = trainer.data_collator
def slow(rows):
    time.sleep(0.1 * len(rows))
    return original(rows)
trainer.data_collator = slow
"""


def run(folder: Path, body: str, **changes: Any) -> Finished:
    """The embedded SFT with something planted beside it."""
    plant(folder, body)
    path = write_config(folder, settings("sft", **(SHORT | changes)))
    finished = canary("run", str(path), "-o", str(folder / "out"), cwd=folder)
    assert finished.code == 0, finished.err
    return finished


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    return run(tmp_path_factory.mktemp("healthy"), "pass", **LONG)


def named(record: RunRecord) -> set[str]:
    assert record.bottlenecks is not None
    return {found.name for found in record.bottlenecks if found.severity == "bottleneck"}


def test_a_healthy_canary_tells_all_of_its_host_and_names_no_bottleneck(
    healthy: Finished,
) -> None:
    record, host = healthy.record(), healthy.record().host
    assert named(record) == set()
    for name, value in host.model_dump().items():
        assert value is not None or name in ("gil_contention", "gil_held", "run_delay"), name
    assert host.cpu_seconds_per_step is not None
    assert host.main_cpu_seconds_per_step is not None
    assert 0 < host.main_cpu_seconds_per_step <= 1.01 * host.cpu_seconds_per_step
    assert host.cpu_seconds_per_step < 1.1 * record.perf.step_time.mean
    assert "bottleneck" not in healthy.err
    (launch,) = record.launches
    assert sum(launch.phases_cpu.values()) == pytest.approx(host.cpu_seconds_per_step, rel=1e-6)
    assert launch.phases_cpu["backward"] > launch.phases_cpu["data"]
    assert launch.cpu_s_per_step == pytest.approx(host.cpu_seconds_per_step, rel=0.15)
    if launch.on_core_step_time_s is not None:
        assert 0 < launch.on_core_step_time_s <= record.perf.step_time.mean


def test_python_in_another_thread_is_named_by_the_lock_it_holds(
    healthy: Finished, tmp_path: Path
) -> None:
    pytest.importorskip("gilknocker")
    record = run(tmp_path, PYTHON_BESIDE, max_steps=40, dataset_size=160).record()
    contention, clean = record.host.gil_contention, healthy.record().host.gil_contention
    assert contention is not None
    assert clean is not None
    assert clean < 0.05
    assert contention > 0.2
    assert named(record) == {"gil_contention"}


def test_a_slow_collator_is_named_with_its_share_of_the_step(tmp_path: Path) -> None:
    finished = run(tmp_path, SLOW_COLLATOR, max_steps=14)
    record = finished.record()
    assert named(record) == {"data_loading"}
    assert record.bottlenecks is not None
    numbers = {one.what: one.value for one in record.bottlenecks[0].evidence}
    assert numbers["step time in the data phase"] > 50
    assert numbers["data phase"] >= 0.98 * 400
    assert numbers["its CPU time"] < 100
    line = next(line for line in finished.err.splitlines() if "data_loading" in line)
    assert line.startswith("  bottleneck  data_loading: step time in the data phase ")
