"""The detectors on a device: they must not wait for it, and must still see what happened."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from canary.anomaly import AdvancedAnomalyDetector
from canary.record.jsonio import read_rows

pytestmark = pytest.mark.gpu


def test_a_watched_step_waits_for_nothing_and_a_fault_is_told(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Embedding(64, 16), torch.nn.Linear(16, 64)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    batches = [torch.randint(0, 64, (4, 8), device="cuda") for _ in range(40)]
    detector = AdvancedAnomalyDetector(output_dir=tmp_path)
    for step, ids in enumerate(batches, 1):
        loss = torch.nn.functional.cross_entropy(model(ids).flatten(0, 1), ids.view(-1))
        (loss * (5000 if step == 30 else 1)).backward()
        optimizer.step()
        rewards = ids.float().mean(1)
        # The first steps allocate; else a wait raises.
        watched = step > 3
        torch.cuda.set_sync_debug_mode("error" if watched else "default")
        detector.analyze_training_step(
            model=model,
            optimizer=optimizer,
            loss=loss * (5000 if step == 30 else 1),
            batch_size=4,
            rewards=rewards,
            predictions=rewards + 0.1,
        )
        torch.cuda.set_sync_debug_mode("default")
        optimizer.zero_grad()
    detector.flush()
    rows = list(read_rows(tmp_path / "alerts.jsonl"))
    assert {row["type"] for row in rows} == {"gradient_explosion", "loss_spike"}
    assert {row["step"] for row in rows} == {30}
