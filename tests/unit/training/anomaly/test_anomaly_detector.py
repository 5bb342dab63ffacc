"""The detector in anyone's own loop: what it is given, keeps, writes, and whom it tells."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import json
import math
import pickle
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from canary.anomaly import (
    AdvancedAnomalyDetector,
    Alert,
    AnomalyDetectionHook,
    Observation,
    StopTraining,
    profiler_registry,
)
from canary.errors import UsageError
from canary.record import jsonio
from canary.record.jsonio import read_rows


@pytest.fixture(autouse=True)
def empty_registry() -> Iterator[None]:
    profiler_registry.clear()
    yield
    profiler_registry.clear()


class Loop:
    """A plain loop over a small classifier; `fault(step)` multiplies the loss."""

    def __init__(self, steps: int = 40, lr: float = 1e-2) -> None:
        torch.manual_seed(0)
        self.model = torch.nn.Sequential(torch.nn.Embedding(16, 8), torch.nn.Linear(8, 16))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=lr)
        self.batches = [torch.randint(0, 16, (8, 6)) for _ in range(steps)]

    def run(self, detector: AdvancedAnomalyDetector, fault: dict[int, float] | None = None) -> int:
        for step, ids in enumerate(self.batches, 1):
            logits = self.model(ids).flatten(0, 1)
            loss = torch.nn.functional.cross_entropy(logits, ids.flatten())
            loss = loss * (fault or {}).get(step, 1.0)
            loss.backward()
            self.optimizer.step()
            detector.analyze_training_step(
                model=self.model,
                optimizer=self.optimizer,
                loss=loss,
                batch_size=8,
            )
            self.optimizer.zero_grad()
        detector.flush()
        return step


def quiet(**arguments: Any) -> AdvancedAnomalyDetector:
    return AdvancedAnomalyDetector(save_alerts=False, **arguments)


def test_importing_it_loads_no_torch_and_nothing_of_the_command_line() -> None:
    code = (
        "import sys, canary.anomaly\n"
        "names = ('torch', 'transformers', 'pydantic', 'rich', 'numpy')\n"
        "sys.exit([name for name in names if name in sys.modules] or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_a_loop_needs_torch_and_nothing_else(tmp_path: Path) -> None:
    blocked = ("transformers", "pydantic", "rich", "yaml", "scipy", "typer", "jinja2")
    code = f"""
import sys
sys.modules.update(dict.fromkeys({blocked!r}))
import torch
from canary.anomaly import AdvancedAnomalyDetector
model = torch.nn.Linear(4, 1)
detector = AdvancedAnomalyDetector(output_dir={str(tmp_path)!r})
loss = model(torch.ones(2, 4)).sum() * float("nan")
loss.backward()
found = detector.analyze_training_step(
    model=model, loss=loss, rewards=[0.0, 1.0], predictions=[0.1, 0.9]
)
assert {{a.type for a in found}} == {{"loss_not_finite", "gradient_not_finite"}}, found
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert len(list(read_rows(tmp_path / "alerts.jsonl"))) == 2


def test_a_healthy_loop_raises_nothing() -> None:
    detector = quiet()
    Loop(120).run(detector)
    assert detector.summary()["total_alerts"] == 0, detector.summary()


def test_a_faulty_step_is_told_while_the_loop_goes_on(tmp_path: Path) -> None:
    detector = AdvancedAnomalyDetector(output_dir=tmp_path / "run")
    loop = Loop(40)
    loop.run(detector, {30: 2000.0})
    rows = list(read_rows(tmp_path / "run" / "alerts.jsonl"))
    found = {row["type"]: row for row in rows}
    assert set(found) >= {"gradient_explosion", "loss_spike"}
    assert all(row["step"] == 30 for row in found.values())
    keys = {"severity", "category", "type", "message", "step", "value", "threshold", "metadata"}
    assert keys <= set(rows[0])
    summary = detector.summary()
    assert summary["total_alerts"] == len(rows)
    assert summary["by_severity"]["critical"] == 1
    assert summary["by_category"]["gradient"] == 1
    assert summary["latest_alerts"][-1]["type"] == rows[-1]["type"]


def test_gradient_norm_and_rates_are_those_of_the_model(tmp_path: Path) -> None:
    seen: list[Observation] = []

    class Listening:
        def observe(self, observation: Observation) -> Iterable[Alert]:
            seen.append(observation)
            return ()

    loop = Loop(3)
    loop.optimizer.param_groups[0]["lr"] = 3e-3
    detector = quiet(detectors=[Listening()])
    ids = loop.batches[0]
    loss = loop.model(ids).square().mean()
    loss.backward()
    expected = torch.nn.utils.get_total_norm([p.grad for p in loop.model.parameters()])
    detector.analyze_training_step(
        model=loop.model,
        optimizer=loop.optimizer,
        loss=loss,
        rewards=torch.tensor([1.0, 3.0]),
        predictions=np.array([1.5, 2.5]),
        kl=torch.tensor([0.1, 0.3]),
        metrics={"mine": 7},
    )
    (observation,) = seen
    assert observation.loss == pytest.approx(loss.item())
    assert observation.grad_norm == pytest.approx(expected.item(), rel=1e-5)
    assert observation.learning_rates == (3e-3,)
    assert observation.rewards is not None
    assert (observation.rewards.mean, observation.rewards.std) == pytest.approx((2.0, 1.0))
    assert observation.agreement is not None
    assert observation.agreement.error == pytest.approx(0.5)
    assert observation.agreement.square == pytest.approx(5.0)
    assert observation.kl == pytest.approx(0.2)
    assert observation.metrics == {"mine": 7.0}
    assert observation.step == 1


class Reads(TorchDispatchMode):
    """Counts what on a device would wait for it."""

    def __init__(self) -> None:
        super().__init__()
        self.waits = 0
        self.kernels = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(func)
        self.kernels += 1
        self.waits += "_local_scalar_dense" in name or "nonzero" in name or "equal" in name
        return func(*args, **(kwargs or {}))


def test_a_step_reads_no_scalar_one_by_one_and_batches_the_norms() -> None:
    loop = Loop(30)
    detector = quiet()
    counted = []
    for ids in loop.batches:
        loss = loop.model(ids).square().mean()
        loss.backward()
        loop.optimizer.step()
        rewards = ids.float().mean(1)
        with Reads() as reads:
            detector.analyze_training_step(
                model=loop.model,
                optimizer=loop.optimizer,
                loss=loss,
                rewards=rewards,
                predictions=rewards + 0.1,
                kl=loss.detach(),
            )
        counted.append((reads.waits, reads.kernels))
        loop.optimizer.zero_grad()
    assert [waits for waits, _ in counted] == [0] * 30
    # Without the two sweeps over the parameters, as many kernels for any number of tensors.
    assert max(kernels for _, kernels in counted[5:15]) < 60


def test_windows_are_bounded() -> None:
    detector = quiet()

    def observe(steps: range) -> None:
        for step in steps:
            detector.judge(
                Observation(
                    step=step,
                    loss=1.0 + 0.1 * math.sin(step),
                    grad_norm=1.0,
                    learning_rates=(1e-4,),
                    batch_size=step % 7 + 1,
                    wall_s=0.1,
                    kl=0.1,
                    entropy=1.0,
                    clip_fraction=0.1,
                )
            )

    def held() -> int:
        return len(pickle.dumps([vars(each) for each in detector.detectors]))

    observe(range(1, 2001))
    after = held()
    observe(range(2001, 8001))
    assert held() <= 1.1 * after


class Colour(enum.Enum):
    RED = 1


class Stubborn:
    def __str__(self) -> str:
        raise RuntimeError("no")


@dataclasses.dataclass
class Holder:
    tensor: torch.Tensor
    path: Path


def awkward() -> dict[Any, Any]:
    loop: list[Any] = []
    loop.append(loop)
    return {
        "tensor": torch.tensor([1.0, float("nan")]),
        "bfloat16": torch.ones(2, dtype=torch.bfloat16),
        "gradient": torch.ones(1, requires_grad=True),
        "large": torch.zeros(1000, 1000),
        "meta": torch.empty(2, device="meta"),
        "array": np.arange(3),
        "numpy scalar": np.float32(1.5),
        "dtype": torch.float32,
        "holder": Holder(torch.ones(2), Path("/x")),
        "set": {3, "a", (1, 2)},
        "frozen": frozenset([Colour.RED]),
        "numbers": [math.nan, math.inf, -math.inf],
        "complex": 1 + 2j,
        "bytes": b"\xff",
        "when": datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC),
        "stubborn": Stubborn(),
        "function": awkward,
        "class": Holder,
        "generator": iter(()),
        "surrogate": "\ud800",
        "cycle": loop,
        "deep": {"a": {"b": {"c": {"d": {"e": {"f": {"g": {"h": 1}}}}}}}},
        "long": "x" * 10_000,
        "many": list(range(1000)),
        (1, 2): "a key that is no text",
        None: None,
    }


def test_metadata_of_any_type_is_written_and_read_back(tmp_path: Path) -> None:
    class Odd:
        def observe(self, observation: Observation) -> Iterable[Alert]:
            value: Any = np.float64("nan")
            return [Alert("low", "mine", "odd", "odd", observation.step, value, 1.0, awkward())]

    detector = AdvancedAnomalyDetector(output_dir=tmp_path, detectors=[Odd()])
    detector.analyze_training_step(loss=1.0)
    line = (tmp_path / "alerts.jsonl").read_text(encoding="utf-8")
    (row,) = read_rows(tmp_path / "alerts.jsonl")
    assert len(line) < 20_000
    metadata = row["metadata"]
    assert row["value"] == "nan"
    assert metadata["tensor"] == [1.0, "nan"]
    assert metadata["bfloat16"] == [1.0, 1.0]
    assert metadata["large"] == {"shape": [1000, 1000], "dtype": "torch.float32"}
    assert metadata["numpy scalar"] == 1.5
    assert metadata["holder"] == {"tensor": [1.0, 1.0], "path": "/x"}
    assert metadata["numbers"] == ["nan", "inf", "-inf"]
    assert metadata["stubborn"] == "<Stubborn>"
    assert metadata["(1, 2)"] == "a key that is no text"
    assert len(metadata["many"]) == 65
    json.dumps(detector.summary(), default=str)
    jsonio.loads(jsonio.dumps(detector.summary()))


def nan_step(detector: AdvancedAnomalyDetector) -> list[Alert]:
    return detector.analyze_training_step(loss=float("nan"))


def test_handlers_get_the_alerts_and_the_step() -> None:
    heard: list[tuple[list[str], int]] = []
    detector = quiet()
    hook = AnomalyDetectionHook(detector)
    hook.register_with_profiler()
    hook.register_with_profiler()
    profiler_registry.register_hook(
        "anomaly_detection", lambda alerts, step: heard.append(([a.type for a in alerts], step))
    )
    with pytest.raises(UsageError, match="there is no hook 'anomaly_detector'"):
        profiler_registry.register_hook("anomaly_detector", lambda alerts, step: None)
    detector.analyze_training_step(loss=1.0)
    nan_step(detector)
    assert heard == [(["loss_not_finite"], 2)]
    hook.unregister()
    for _ in range(15):
        detector.analyze_training_step(loss=1.0)
    nan_step(detector)
    assert len(heard) == 1


def test_a_handler_that_raises_is_reported_and_the_others_are_still_called(
    capsys: pytest.CaptureFixture[str],
) -> None:
    heard = []

    def broken(alerts: list[Alert], step: int) -> None:
        raise ValueError("my mistake")

    detector = quiet()
    AnomalyDetectionHook(detector).register_with_profiler()
    profiler_registry.register_hook("anomaly_detection", broken)
    profiler_registry.register_hook("anomaly_detection", lambda alerts, step: heard.append(step))
    assert nan_step(detector)
    assert heard == [1]
    assert "broken failed at step 1, training continues: ValueError: my mistake" in (
        capsys.readouterr().err
    )


def test_stop_on_ends_at_that_severity_and_not_below() -> None:
    with pytest.raises(StopTraining, match=r"stopped at step 1 by loss_not_finite \(critical\)"):
        nan_step(quiet(stop_on="critical"))
    high = quiet(stop_on="critical")
    assert not high.analyze_training_step(grad_norm=1e-9)
    assert high.analyze_training_step(grad_norm=1e-9)[0].severity == "high"
    stopped = quiet(stop_on="high")
    stopped.analyze_training_step(grad_norm=1e-9)
    with pytest.raises(StopTraining, match="gradient_vanishing"):
        stopped.analyze_training_step(grad_norm=1e-9)


@pytest.mark.parametrize(
    ("norms", "what"),
    [
        ([0.0, 0.5, 0.0, 0.4, 0.0, 0.0, 0.6] * 8, "groups of equal rewards"),
        ([1.2e-7, 0.1, 0.4, 0.5], "a start from zero"),
    ],
)
def test_the_scale_of_a_loss_is_no_explosion_and_a_group_without_signal_no_vanishing(
    norms: list[float], what: str
) -> None:
    detector = quiet(stop_on="high")
    for norm in norms:
        assert not detector.analyze_training_step(grad_norm=norm), what


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"gradient": {"explosion_threshold": "x"}}, "is not a threshold"),
        ({"gradient": {"window_size": 0}}, "of steps, at least 2"),
        ({"learning_rate": {"max_lr": float("nan")}}, "is not a threshold"),
    ],
)
def test_a_threshold_that_can_never_hold_is_refused(
    settings: dict[str, dict[str, Any]], said: str
) -> None:
    with pytest.raises(UsageError) as refused:
        AdvancedAnomalyDetector(save_alerts=False, **settings)  # type: ignore[arg-type]
    assert said in f"{refused.value} {refused.value.hint}"


def test_a_detector_of_ones_own_by_protocol_and_by_subclass() -> None:
    def low(observation: Observation) -> list[Alert]:
        if observation.metrics.get("accuracy", 1.0) >= 0.5:
            return []
        return [Alert("high", "task", "accuracy_low", "accuracy", observation.step, 0.1, 0.5)]

    class Accuracy:
        def observe(self, observation: Observation) -> Iterable[Alert]:
            return low(observation)

    class Mine(AdvancedAnomalyDetector):
        def observe(self, observation: Observation) -> list[Alert]:
            return [*super().observe(observation), *low(observation)]

    for detector in (quiet(detectors=[Accuracy()]), Mine(save_alerts=False)):
        assert not detector.analyze_training_step(metrics={"accuracy": 0.9})
        (alert,) = detector.analyze_training_step(metrics={"accuracy": torch.tensor(0.1)})
        assert (alert.type, alert.step) == ("accuracy_low", 2)
        assert detector.summary()["by_category"] == {"task": 1}


class Task(AdvancedAnomalyDetector):
    """A subclass that adds its alerts where the loop calls it."""

    def analyze_training_step(self, *args: Any, **kwargs: Any) -> list[Alert]:
        found = super().analyze_training_step(*args, **kwargs)
        return [*found, Alert("high", "task", "mine", "a word", kwargs.get("step") or 1)]


class Further(Task):
    def analyze_training_step(self, *args: Any, **kwargs: Any) -> list[Alert]:
        first = Alert("low", "task", "further", "a word", 1)
        return [first, *super().analyze_training_step(*args, **kwargs)]


def test_alerts_that_a_subclass_adds_to_a_step_are_logged_once_and_told(tmp_path: Path) -> None:
    detector = Further(output_dir=tmp_path)
    heard: list[str] = []
    detector.add_listener(lambda alerts, step: heard.extend(alert.type for alert in alerts))
    found = detector.analyze_training_step(loss=float("nan"))
    assert [alert.type for alert in found] == ["further", "loss_not_finite", "mine"]
    assert sorted(heard) == sorted(alert.type for alert in found)
    assert sorted(row["type"] for row in read_rows(tmp_path / "alerts.jsonl")) == sorted(heard)
    summary = detector.summary()
    assert summary["total_alerts"] == 3
    assert summary["by_category"] == {"numerics": 1, "task": 2}
    with pytest.raises(StopTraining, match="mine"):
        Task(save_alerts=False, stop_on="high").analyze_training_step(loss=1.0)


def test_the_summary_is_a_file_at_the_end(tmp_path: Path) -> None:
    detector = AdvancedAnomalyDetector(output_dir=tmp_path / "flushed")
    nan_step(detector)
    detector.flush()
    stopped = AdvancedAnomalyDetector(output_dir=tmp_path / "stopped", stop_on="critical")
    with pytest.raises(StopTraining):
        nan_step(stopped)
    code = (
        "from canary.anomaly import AdvancedAnomalyDetector\n"
        f"detector = AdvancedAnomalyDetector(output_dir={str(tmp_path / 'left')!r})\n"
        "detector.analyze_training_step(loss=float('nan'))\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    for folder in ("flushed", "stopped", "left"):
        text = (tmp_path / folder / "alert_summary.json").read_text(encoding="utf-8")
        summary = jsonio.loads(text)
        assert set(summary) == {"total_alerts", "by_category", "by_severity", "latest_alerts"}
        assert summary["total_alerts"] == 1
        assert summary["latest_alerts"][0]["type"] == "loss_not_finite"
    AdvancedAnomalyDetector(output_dir=tmp_path / "none", save_alerts=False).flush()
    assert not (tmp_path / "none").exists()


def test_a_detector_that_raises_is_asked_no_more_and_the_others_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Broken:
        def observe(self, observation: Observation) -> Iterable[Alert]:
            raise KeyError("mine")

    detector = quiet(detectors=[Broken()])
    detector.analyze_training_step(loss=1.0)
    assert nan_step(detector)[0].type == "loss_not_finite"
    assert capsys.readouterr().err.count("Broken failed at step 1") == 1


def test_a_condition_that_lasts_is_told_once_and_again_when_it_comes_back() -> None:
    detector = quiet()
    told = []
    for step in range(1, 300):
        bad = 10 <= step < 150 or step >= 200
        told += detector.analyze_training_step(loss=float("nan") if bad else 1.0)
    steps = [alert.step for alert in told if alert.type == "loss_not_finite"]
    assert steps == [10, 110, 200]


def test_overflows_of_a_gradient_scaler_are_let_pass_at_first() -> None:
    def told(scaled: bool, steps: int) -> list[Alert]:
        detector = quiet(scaled_gradients=scaled)
        found = []
        for _ in range(steps):
            found += detector.analyze_training_step(loss=1.0, grad_norm=float("inf"))
        return found

    assert not told(True, 10)
    assert told(True, 30)
    assert told(False, 1)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"gradient": {"explosion_treshold": 3}}, "gradient takes explosion_threshold"),
        ({"stop_on": "fatal"}, "one of low, medium, high, critical"),
    ],
)
def test_a_wrong_argument_is_named(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError) as caught:
        quiet(**arguments)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"loss": "high"}, "loss must be one number"),
        ({"rewards": [1.0, 2.0], "predictions": [1.0]}, "2 rewards but 1 predictions"),
        ({"rewards": "many"}, "rewards must be numbers"),
    ],
)
def test_a_value_that_is_none_is_named(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError) as caught:
        quiet().analyze_training_step(**arguments)
    assert words in str(caught.value)


def test_a_folder_that_cannot_be_written_ends_no_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    detector = AdvancedAnomalyDetector(output_dir=tmp_path / "file")
    assert nan_step(detector)
    assert detector.summary()["total_alerts"] == 1
    assert capsys.readouterr().err.count("alerts are no longer written") == 1
