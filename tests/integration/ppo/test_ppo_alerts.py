"""Live detection on real runs of PPO whose values go wrong, and on one that learns."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from canary.anomaly import AdvancedAnomalyDetector, Alert
from canary.training.anomaly.observation import from_row
from canary.training.loops.trainer import TrainerCollector
from tests.integration.conftest import canary, settings, write_config
from tests.integration.ppo.test_ppo_rewards import built, letters_to_sort
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
    values = settings("ppo", max_steps=14, probe_steps=0, dataset_size=None, stop_on="critical")
    path = write_config(tmp_path, values)
    done = canary("run", str(path), "-o", str(tmp_path / "out"), cwd=tmp_path)
    record = done.record()
    assert record.status == "failed"
    assert "gradient_explosion (critical)" in str(record.reason)
    rows = done.rows()
    losses = [row["rl"]["value_loss"] for row in rows]  # type: ignore[index]
    assert losses[-1] > 100 * max(losses[:7])
    assert 8 <= len(rows) < 14, "told soon, and not before"


@pytest.mark.parametrize("training_type", ["ppo", "grpo"])
def test_a_rate_at_which_everything_breaks_at_once_ends_a_run_within_five_steps(
    tmp_path: Path, training_type: str
) -> None:
    changes = {"learning_rate": 0.3, "max_new_tokens": 8, "stop_on": "high"}
    values = settings(training_type, max_steps=8, probe_steps=0, dataset_size=None, **changes)
    path = write_config(tmp_path, values)
    done = canary("run", str(path), "-o", str(tmp_path / "out"), cwd=tmp_path)
    record = done.record()
    assert record.status == "failed"
    assert "(high)" in str(record.reason)
    assert len(done.rows()) <= 5


@pytest.fixture
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def alerts_of(folder: Path, rate: float) -> list[Alert]:
    """Of ten steps that learn, with the values' learning rate times `rate`."""
    folder.mkdir()
    letters_to_sort(folder / "letters.jsonl")
    ppo = {"ppo_epochs": 2, "init_kl_coef": 0.01}
    data = str(folder / "letters.jsonl")
    trainer, _ = built(
        folder, 10, dataset_name=data, batch_size=32, learning_rate=3e-4, seed=1, ppo=ppo
    )
    create = trainer.create_optimizer_and_scheduler

    def with_another_rate(steps: int) -> None:
        create(steps)
        head = set(trainer.model.value_head.parameters())
        for group in list(trainer.optimizer.param_groups):
            group["params"] = [each for each in group["params"] if each not in head]
        own = {"params": list(head), "lr": 3e-4 * rate, "initial_lr": 3e-4 * rate}
        trainer.optimizer.add_param_group(own)
        trainer.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(trainer.optimizer, lambda _: 1.0)

    trainer.create_optimizer_and_scheduler = with_another_rate
    detector = AdvancedAnomalyDetector(save_alerts=False)
    found: list[Alert] = []

    def judge(row: Any) -> None:
        found.extend(detector.judge(from_row(row)))

    TrainerCollector(trainer, judge, 0).run(trainer.train)
    return found


@pytest.mark.usefixtures("_one_thread")
def test_values_that_learn_too_fast_are_told_although_the_gradient_is_not_large(
    tmp_path: Path,
) -> None:
    assert alerts_of(tmp_path / "usual", 1.0) == []
    found = {alert.type: alert for alert in alerts_of(tmp_path / "fast", 1000.0)}
    assert "gradient_explosion" not in found
    told = found["value_explains_nothing"]
    assert told.step <= 8
    assert told.value is not None
    assert told.value < -2
