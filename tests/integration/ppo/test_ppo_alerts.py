"""Live detection on real runs of PPO whose values go wrong, and on one that learns."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.conftest import canary, settings, write_config
from tests.planting import plant

pytestmark = pytest.mark.train

GROWING_SCORES = """
original, calls = trainer.scorer.score, [0]
def score(samples):
    calls[0] += 1
    return original(samples) * 10.0 ** max(0, calls[0] - 7)
trainer.scorer.score = score
"""


def test_values_that_blow_up_end_a_run_that_is_to_end_at_what_is_critical(tmp_path: Path) -> None:
    plant(tmp_path, GROWING_SCORES)
    values = settings("ppo", max_steps=14, look_steps=0, dataset_size=None, stop_on="critical")
    path = write_config(tmp_path, values)
    done = canary("run", str(path), "-o", str(tmp_path / "out"), cwd=tmp_path)
    record = done.record()
    assert record.status == "failed"
    assert "gradient_explosion (critical)" in str(record.reason)
    rows = done.rows()
    losses = [row["rl"]["value_loss"] for row in rows]  # type: ignore[index]
    assert losses[-1] > 100 * max(losses[:7])
    assert 8 <= len(rows) < 14, "told soon, and not before"


def test_a_rate_at_which_everything_breaks_at_once_ends_a_run_within_five_steps(
    tmp_path: Path,
) -> None:
    changes = {"learning_rate": 0.3, "max_new_tokens": 8, "stop_on": "high"}
    values = settings("grpo", max_steps=8, look_steps=0, dataset_size=None, **changes)
    path = write_config(tmp_path, values)
    done = canary("run", str(path), "-o", str(tmp_path / "out"), cwd=tmp_path)
    record = done.record()
    assert record.status == "failed"
    assert "(high)" in str(record.reason)
    assert len(done.rows()) <= 5
