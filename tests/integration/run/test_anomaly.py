"""Live anomaly detection on real trainings: canaries, commands, and anyone's Trainer."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Trainer, TrainingArguments

from canary.anomaly import (
    AdvancedAnomalyDetector,
    Alert,
    AnomalyCallback,
    AnomalyDetectionHook,
    StopTraining,
    profiler_registry,
)
from canary.record.jsonio import read_rows
from tests.integration.conftest import Finished, canary, run_config, settings
from tests.integration.exec.user_scripts import sft_script, write_data
from tests.integration.run.test_trackers import scalars

pytestmark = pytest.mark.train
DOCS = Path(__file__).parents[3] / "docs" / "live.md"


@pytest.fixture(scope="module")
def stopped_run(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    values = settings(
        "sft",
        max_steps=30,
        look_steps=2,
        learning_rate=8.0,
        dataset_size=None,
        report_to=["tensorboard"],
    )
    folder = tmp_path_factory.mktemp("stopped")
    return run_config(folder, values, "--stop-on", "critical")


def test_stop_on_ends_the_run_at_the_alert_and_says_so(stopped_run: Finished) -> None:
    record = stopped_run.record()
    assert stopped_run.code == 4
    assert record.status == "failed"
    alerts = list(read_rows(stopped_run.folder / "alerts.jsonl"))
    last = alerts[-1]
    assert last["severity"] == "critical"
    assert f"stopped at step {last['step']} by {last['type']} (critical)" in str(record.reason)
    rows = stopped_run.rows()
    assert rows[-1]["step"] == last["step"] < 30
    assert [alert["type"] for alert in record.alerts] == [alert["type"] for alert in alerts]
    assert "lr_too_high" in {alert["type"] for alert in alerts}
    assert record.alert_summary is not None
    assert record.alert_summary.total == len(alerts)
    assert f"critical {last['type']} at step {last['step']}" in stopped_run.err


def test_a_command_is_stopped_before_what_comes_after_its_training(tmp_path: Path) -> None:
    write_data(tmp_path)
    before = (
        "class Breaks(TrainerCallback):\n"
        "    def on_step_begin(self, args, state, control, model=None, **kwargs):\n"
        "        if state.global_step == 3:\n"
        "            next(model.parameters()).data.fill_(float('nan'))\n"
        "trainer.add_callback(Breaks())\n"
    )
    script = sft_script(tmp_path, steps=6, before=before)
    done = canary(
        *("exec", "--stop-on", "critical", "-o", str(tmp_path / "out")),
        *("--", sys.executable, script.name),
        cwd=tmp_path,
    )
    (folder,) = (tmp_path / "out").glob("2*")
    record = Finished(done.code, done.out, done.err, folder).record()
    assert done.code == 1, done.err
    assert "canary: stopped at step 4 by loss_not_finite" in done.err
    assert "Traceback" not in done.err
    assert record.status == "failed"
    assert "stopped at step 4 by loss_not_finite" in str(record.reason)
    assert not (tmp_path / "final").exists()
    assert not (folder / "final").exists()
    assert "loss_not_finite" in [each["type"] for each in record.alerts]


class Words(torch.nn.Module):
    """A model whose loss is NaN from a chosen call on."""

    def __init__(self, bad_from: int = 10**9) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Embedding(32, 8), torch.nn.Linear(8, 32))
        self.calls, self.bad_from = 0, bad_from

    def forward(self, input_ids: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        self.calls += 1
        logits = self.layers(input_ids)
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
        return {"loss": loss * (float("nan") if self.calls >= self.bad_from else 1.0)}


@pytest.fixture(autouse=True)
def empty_registry() -> Iterator[None]:
    profiler_registry.clear()
    yield
    profiler_registry.clear()


def a_trainer(folder: Path, model: Words, callback: AnomalyCallback, **more: Any) -> Trainer:
    torch.manual_seed(0)
    rows = [torch.randint(0, 32, (9,)) for _ in range(64)]
    arguments: dict[str, Any] = {
        "max_steps": 10,
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 2,
        "use_cpu": True,
        "report_to": "none",
        "save_strategy": "no",
        "logging_steps": 1,
        "disable_tqdm": True,
    }
    return Trainer(
        model=model,
        args=TrainingArguments(str(folder / "out"), **arguments | more),
        train_dataset=[{"input_ids": row, "labels": row} for row in rows],
        callbacks=[callback],
    )


class Seen:
    """A detector that keeps what it is shown."""

    def __init__(self) -> None:
        self.observations: list[Any] = []

    def observe(self, observation: Any) -> tuple[()]:
        self.observations.append(observation)
        return ()


def test_the_callback_sees_raw_losses_norms_and_rates(tmp_path: Path) -> None:
    seen = Seen()
    callback = AnomalyCallback(detectors=[seen])
    trainer = a_trainer(tmp_path, Words(), callback, max_grad_norm=1.0, warmup_steps=3)
    untouched = Trainer.training_step, Trainer.log
    trainer.train()
    logged = [entry for entry in trainer.state.log_history if "loss" in entry]
    assert len(seen.observations) == len(logged) == 10
    for observation, entry in zip(seen.observations, logged, strict=True):
        assert observation.loss == pytest.approx(float(entry["loss"]), rel=1e-3)
        assert observation.learning_rates[0] == pytest.approx(float(entry["learning_rate"]))
        assert observation.grad_norm > 0
        assert observation.batch_size == 8
        assert observation.grad_norm == pytest.approx(float(entry["grad_norm"]), rel=1e-3)
    assert callback.detector is not None
    assert callback.detector.summary()["total_alerts"] == 0, callback.detector.summary()
    assert (Trainer.training_step, Trainer.log) == untouched
    assert "clip_grad_norm_" not in vars(trainer.accelerator)


def test_the_callback_calls_what_a_subclass_adds_to_a_step(tmp_path: Path) -> None:
    class Task(AdvancedAnomalyDetector):
        def analyze_training_step(self, *args: Any, **kwargs: Any) -> list[Alert]:
            found = super().analyze_training_step(*args, **kwargs)
            if kwargs["step"] == 3:
                found.append(Alert("high", "task", "mine", "a word", 3))
            return found

    callback = AnomalyCallback(Task(output_dir=tmp_path))
    a_trainer(tmp_path, Words(), callback).train()
    assert [row["type"] for row in read_rows(tmp_path / "alerts.jsonl")] == ["mine"]
    assert (tmp_path / "alert_summary.json").exists()


def test_the_callback_tells_trackers_and_a_handler_may_stop_the_training(tmp_path: Path) -> None:
    heard = []

    def stop(alerts: Any, step: int) -> None:
        heard.append((sorted(alert.type for alert in alerts), step))
        raise StopTraining("enough")

    detector = AdvancedAnomalyDetector(output_dir=tmp_path)
    AnomalyDetectionHook(detector).register_with_profiler()
    profiler_registry.register_hook("anomaly_detection", stop)
    callback = AnomalyCallback(detector)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TENSORBOARD_LOGGING_DIR", str(tmp_path / "tb"))
        # The filter that hides a NaN from the log hides none from the callback.
        trainer = a_trainer(
            tmp_path,
            Words(bad_from=7),
            callback,
            report_to="tensorboard",
            logging_nan_inf_filter=True,
        )
        trainer.train()
    assert trainer.state.global_step == 4
    assert heard == [(["gradient_not_finite", "loss_not_finite"], 4)]
    assert str(callback.stopped) == "enough"
    assert len(list(read_rows(tmp_path / "alerts.jsonl"))) == 2
    assert scalars(tmp_path / "tb")["train/anomaly/numerics_critical"] == [(4, 2.0)]


def test_the_examples_of_the_docs_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = DOCS.read_text(encoding="utf-8")
    loop, trainer, own = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    monkeypatch.chdir(tmp_path)
    found: dict[str, Any] = {}
    exec(compile(loop, "live.md", "exec"), found)
    assert found["detector"].summary()["by_severity"]["critical"] == 1
    rows = list(read_rows(tmp_path / "run" / "alerts.jsonl"))
    assert {row["step"] for row in rows} == {40}
    profiler_registry.clear()
    exec(compile(trainer, "live.md", "exec"), found)
    assert found["watch"].detector.summary()["total_alerts"] == 0
    assert found["watch"].stopped is None
    exec(compile(own, "live.md", "exec"), {})
