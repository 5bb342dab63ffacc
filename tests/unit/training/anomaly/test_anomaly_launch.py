"""The watch over a launch: ranks, and how it ends a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from canary.anomaly import Alert, StopTraining, profiler_registry
from canary.cli import app
from canary.errors import ConfigError
from canary.record.jsonio import read_rows
from canary.training.anomaly.advanced import RunDetectors
from tests.unit.recording import Recording


def row(step: int, loss: float = 1.0, **more: Any) -> Any:
    return {"launch": 2, "step": step, "loss": loss, "wall_s": 0.1, "phases": {}} | more


def test_a_row_gets_its_alerts_and_the_file_has_them_too(tmp_path: Path) -> None:
    watch = RunDetectors(tmp_path, 2)
    healthy, bad = row(1), row(2, float("nan"))
    assert watch.judge(healthy) is None
    assert watch.judge(bad) is None
    assert "alerts" not in healthy
    (alert,) = bad["alerts"]
    assert (alert["type"], alert["step"], alert["launch"]) == ("loss_not_finite", 2, 2)
    assert "rank" not in alert
    (written,) = read_rows(tmp_path / "alerts.jsonl")
    assert alert.items() <= (written | {"value": alert["value"]}).items()


def test_other_ranks_look_at_their_own_losses_alone(tmp_path: Path) -> None:
    first = RunDetectors(tmp_path, 2, rank=0, ranks=2)
    second = RunDetectors(tmp_path, 2, rank=1, ranks=2)
    before, vanished = row(1, grad_norm=1e-9), row(2, grad_norm=1e-9)
    broken = row(3, float("inf"))
    for each in (before, vanished, broken):
        second.judge(each)
    assert "alerts" not in vanished
    assert [(each["type"], each["rank"]) for each in broken["alerts"]] == [("loss_not_finite", 1)]
    first.judge(before)
    first.judge(vanished)
    assert [(each["type"], each["rank"]) for each in vanished["alerts"]] == [
        ("gradient_vanishing", 0)
    ]


def test_stop_on_says_so_after_the_row_has_its_alert(tmp_path: Path) -> None:
    watch = RunDetectors(tmp_path, 2, stop_on="high")
    spoilt = row(1, learning_rate=3.0)
    stop = watch.judge(spoilt)
    assert isinstance(stop, StopTraining)
    assert "lr_too_high" in str(stop)
    assert len(spoilt["alerts"]) == 1
    assert RunDetectors(tmp_path, 2, stop_on="critical").judge(row(1, learning_rate=3.0)) is None


def test_handlers_of_the_process_hear_a_launch_and_may_stop_it(tmp_path: Path) -> None:
    heard = []

    def handler(alerts: list[Alert], step: int) -> None:
        heard.append((alerts[0].type, step))
        raise StopTraining("the user's own reason")

    profiler_registry.register_hook("anomaly_detection", handler)
    try:
        stop = RunDetectors(tmp_path, 2).judge(row(3, float("nan")))
    finally:
        profiler_registry.clear()
    assert heard == [("loss_not_finite", 3)]
    assert str(stop) == "the user's own reason"


def test_a_severity_that_is_none_is_refused_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["run", "--stop-on", "fatal"])
    assert isinstance(done.exception, ConfigError)
    assert "stop_on" in str(done.exception)
    assert "critical" in str(done.exception)
    assert not list(tmp_path.iterdir())


def recorded(made: Recording, bad: int = 6) -> int:
    """Steps that a recorded loop began."""
    begun = 0
    with made.of() as recorder:
        for number in range(1, 13):
            with recorder.step({"x": torch.full((2, 2), number)}) as step:
                begun = number
                step.loss(float("nan") if number == bad else 1.0)
    return begun


def test_a_recorder_keeps_alerts_and_goes_on(tmp_path: Path) -> None:
    made = Recording(tmp_path, 2)
    assert recorded(made) == 12
    record = made.record()
    assert record.status == "completed"
    (alert,) = record.alerts
    assert (alert["type"], alert["step"]) == ("loss_not_finite", 6)
    assert record.alert_summary is not None
    assert record.alert_summary.total == 1
    assert len(list(read_rows(made.run.path / "alerts.jsonl"))) == 1


@pytest.mark.parametrize("bad", [6, 12])
def test_a_recorder_stops_its_loop_and_the_record_has_failed(tmp_path: Path, bad: int) -> None:
    made = Recording(tmp_path, 2, stop_on="critical")
    with pytest.raises(StopTraining, match=f"stopped at step {bad}"):
        recorded(made, bad)
    record = made.record()
    assert record.status == "failed"
    assert f"stopped at step {bad} by loss_not_finite" in str(record.reason)
    assert len(record.stability.loss_values) == bad
