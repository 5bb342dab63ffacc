"""The profiler on a device: times of kernels, copies, launches and idle time."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
import torch

from canary.record.folder import load_record
from canary.record.types import RunRecord
from tests.unit.recording import Recording

pytestmark = pytest.mark.gpu

SIZE = 2048


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two profiled steps with one copy in, one conversion, two products and a sleep each."""
    model = torch.nn.Linear(SIZE, SIZE, bias=False).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    made = Recording(tmp_path_factory.mktemp("profiled"), profiled=(5, 2))
    with made.of(model=model, optimizer=optimizer) as recorder:
        for _ in range(10):
            host = torch.rand(SIZE, SIZE)
            with recorder.step({"x": host[:2]}) as step:
                x = host.cuda()
                loss = model(x).to(torch.bfloat16).float().pow(2).mean()
                step.loss(loss)
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                time.sleep(0.05)
    made.record()
    return made.run.path


@pytest.fixture(scope="module")
def record(run: Path) -> RunRecord:
    return load_record(run)


def test_every_figure_of_the_device_is_there(record: RunRecord) -> None:
    found = record.profiler
    assert found.steps == [5, 6]
    assert not [key for key in record.unmeasured if key.startswith("profiler")]
    assert found.cuda_time_total_ms is not None
    assert found.self_cuda_time_total_ms is not None
    assert found.wall_ms is not None
    assert 0 < found.cuda_time_total_ms < found.wall_ms
    assert found.self_cuda_time_total_ms == pytest.approx(found.cuda_time_total_ms, rel=0.1)
    assert found.device_idle_pct is not None
    assert found.device_idle_pct > 20, "it slept for 100 ms"
    assert found.kernel_launches is not None
    assert found.kernel_launches >= 2 * 6
    assert "aten::mm" in {row.name for row in found.top_cuda_ops}


def test_the_trace_has_kernels(run: Path, record: RunRecord) -> None:
    assert record.profiler.trace_path is not None
    trace = json.loads((run / record.profiler.trace_path).read_text())
    assert any(event.get("cat") == "kernel" for event in trace["traceEvents"])
