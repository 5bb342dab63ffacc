"""The Recorder on a device: it must not wait for it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.unit.recording import Recording

pytestmark = pytest.mark.gpu


def test_a_recorded_step_waits_for_nothing(tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Embedding(64, 16), torch.nn.Linear(16, 64)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    batches = [torch.randint(0, 64, (4, 8), device="cuda") for _ in range(12)]
    made = Recording(tmp_path)
    with made.of(model=model, optimizer=optimizer) as recorder:
        for number, ids in enumerate(batches):
            # The first steps allocate; from then on a wait raises.
            torch.cuda.set_sync_debug_mode("error" if number > 2 else "default")
            with recorder.step({"input_ids": ids, "labels": ids}) as step:
                with step.phase("forward"):
                    loss = torch.nn.functional.cross_entropy(model(ids).flatten(0, 1), ids.view(-1))
                step.loss(loss)
                with step.phase("backward"):
                    loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                step.log(reward=loss)
        torch.cuda.set_sync_debug_mode("default")
    record = made.record()
    assert record.status == "completed"
    assert len(record.stability.loss_values) == 12
    assert all(value > 0 for value in record.stability.loss_values)
    assert record.memory.peak_allocated_bytes or record.perf.max_mem_kind == "device"
