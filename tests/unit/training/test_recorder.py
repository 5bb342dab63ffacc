"""The Recorder: what it refuses, and what it keeps of a loop that ends badly."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode

from canary import Recorder
from canary.compare.rules import answers
from canary.errors import UsageError
from canary.protocol.job import Job, Result
from canary.record.jsonio import read_rows
from canary.record.profile import Window
from canary.training.recorder.collector import LoopCollector
from tests.unit.recording import Recording

LOOP = """
import sys
sys.modules.update(dict.fromkeys({blocked!r}))
from canary import Recorder
with Recorder("loop") as recorder:
    for number in range(4):
        with recorder.step({{"x": [number]}}) as step:
            step.loss(number)
"""
TRAINING_STACK = ("transformers", "trl", "peft", "datasets", "accelerate")
OF_THE_COMMAND_LINE = ("pydantic", "yaml", "rich", "typer", "jinja2", "scipy")


def test_importing_canary_loads_no_torch() -> None:
    code = "import sys, canary; sys.exit('torch' in sys.modules or 'pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.slow
def test_in_a_command_it_needs_only_what_the_command_has(tmp_path: Path) -> None:
    """No package of the canary's own: the command's Python may have none of them."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    files = {name: str(tmp_path / name) for name in ("config", "rows", "result", "cache")}
    window = Window(3, 1, str(tmp_path), str(tmp_path / "trace.json"))
    job = Job(
        launch=0,
        config_file=files["config"],
        rows_file=files["rows"],
        result_file=files["result"],
        scratch_dir=str(scratch),
        cache_dir=files["cache"],
        rows_dir=files["cache"],
        stop_after=3,
        look_steps=2,
        profile=asdict(window),
    )
    job.write(tmp_path / "job.json")
    blocked = (*TRAINING_STACK, *OF_THE_COMMAND_LINE)
    code = LOOP.format(blocked=blocked)
    environment = os.environ | {"_RLHF_CANARY_JOB": str(tmp_path / "job.json")}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
    result = Result.read(Path(files["result"]))
    assert result is not None
    assert result.status == "completed"
    assert [row["loss"] for row in read_rows(Path(files["rows"]))] == [0.0, 1.0, 2.0]
    assert result.exact["steps"] == 2
    assert (tmp_path / "operators.json").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"name": "a loop"}, "'a loop' cannot be the name"),
        ({"model": {"w": 1}}, "takes a torch.nn.Module, got dict"),
        ({"optimizer": 3}, "takes torch optimizers, got int"),
        ({"config": {"training_type": "grop"}}, "did you mean 'grpo'?"),
    ],
)
def test_a_wrong_argument_is_named(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=r".") as caught:
        Recorder(**{"name": "loop"} | arguments)
    assert words in str(caught.value)


def test_a_misspelt_phase_is_refused_with_the_nearest_name(tmp_path: Path) -> None:
    with (
        pytest.raises(UsageError, match="did you mean 'forward'"),
        Recording(tmp_path).of() as recorder,
        recorder.step() as step,
        step.phase("foward"),
    ):
        pass


def test_a_step_outside_of_the_recorder_is_refused() -> None:
    with pytest.raises(UsageError, match="with Recorder"), Recorder("loop").step():
        pass


@pytest.mark.parametrize("value", [torch.zeros(2), "high"])
def test_a_loss_that_is_not_one_number_is_refused(tmp_path: Path, value: Any) -> None:
    with (
        pytest.raises(UsageError, match=r"step\.loss takes one number"),
        Recording(tmp_path).of() as recorder,
        recorder.step() as step,
    ):
        step.loss(value)


def test_without_canary_exec_the_loop_runs_and_nothing_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with Recorder("loop") as recorder:
        for number in recorder.batches(range(3)):
            with recorder.step([number]) as step, step.phase("forward"):
                step.loss(1.0)
                step.log(reward=2.0)
    assert number == 2
    assert not list(tmp_path.iterdir())
    assert (
        capsys.readouterr().err.count("this loop is not recorded: start it with canary exec") == 1
    )


def test_scalars_of_any_framework_and_no_model(tmp_path: Path) -> None:
    """numpy's and Python's numbers, arrays as batches: what can be had is recorded, and the rest
    is named with its reason."""
    made = Recording(tmp_path, 2)
    with made.of() as recorder:
        for number in range(5):
            with recorder.step({"x": np.full((3, 2), float(number))}) as step:
                with step.phase("forward"):
                    pass
                step.loss(np.float32(2.5 - number))
                step.log(reward=number, kl=torch.tensor([0.5]))
                step.log(reward=number + 1)
                step.learning_rate(0.1)
                step.tokens(input=7)
    record = made.record()
    assert record.status == "completed"
    assert record.stability.loss_values == [2.5, 1.5, 0.5, -0.5, -1.5]
    assert record.exact["first_loss"]["loss"] == 2.5
    assert record.exact["trajectory"]["learning_rates"] == [0.1, 0.1]
    assert record.exact["trajectory"]["rl"] == {"kl": [0.5, 0.5], "reward": [0.5, 1.5]}
    hashes = [step[0]["sha256"] for step in record.exact["batches"]]
    assert len(set(hashes)) == 2
    assert record.tokens == {"input_tokens": 35}
    assert record.perf.samples_per_sec
    assert "model" not in record.exact
    for key in ("exact.model", "exact.first_gradient", "exact.trajectory.learning_rates"):
        assert record.unmeasured[key].startswith("the Recorder was given no")


class OutOfMemoryError(RuntimeError):
    """As torch names its own."""


@pytest.mark.parametrize(
    ("error", "status", "look_steps"),
    [
        (ValueError("no such token"), "failed", 12),
        (OutOfMemoryError("CUDA out of memory"), "oom", 0),
        (KeyboardInterrupt(), "interrupted", 0),
        (SystemExit(3), "failed", 0),
        (SystemExit(0), "completed", 12),
    ],
)
def test_what_ends_the_loop_is_in_the_record_and_raised_on(
    tmp_path: Path, error: BaseException, status: str, look_steps: int
) -> None:
    made = Recording(tmp_path, look_steps)

    def loop() -> None:
        with made.of() as recorder:
            with recorder.step() as step:
                step.loss(1.0)
            with recorder.step():
                raise error

    with pytest.raises(type(error)):
        loop()
    record = made.record()
    assert record.status == status
    assert record.stability.loss_values == [1.0]
    assert {launch.status for launch in record.launches} <= {status, "completed"}
    if status in ("failed", "oom"):
        assert type(error).__name__ in (record.reason or "")


def test_past_the_last_step_the_process_ends(tmp_path: Path) -> None:
    made = Recording(tmp_path, max_steps=3)
    seen: list[Any] = []

    def loop() -> None:
        with made.of() as recorder:
            for number in range(5):
                assert recorder.done == (number == 3)
                if recorder.done:
                    seen.extend(recorder.batches([[1], [2]]))
                with recorder.step() as step:
                    step.loss(number)

    with pytest.raises(SystemExit) as ended:
        loop()
    assert (ended.value.code, seen) == (0, [])
    assert made.record().stability.loss_values == [0.0, 1.0, 2.0]


def test_settings_that_are_secret_are_not_kept(tmp_path: Path) -> None:
    config = {"hub_token": "hf_x", "wandb_api_key": "k", "learning_rate": 0.1, "warm": [1, 2]}
    made = Recording(tmp_path)
    with made.of(config=config) as recorder, recorder.step() as step:
        step.loss(1.0)
    record = made.record()
    assert record.config["learning_rate"] == 0.1
    assert record.config["trainer_args"] == {"warm": [1, 2]}
    text = json.dumps(record.model_dump(mode="json"))
    assert "hf_x" not in text


def test_a_loop_without_a_step_has_failed(tmp_path: Path) -> None:
    made = Recording(tmp_path)
    with made.of():
        pass
    record = made.record()
    assert (record.status, record.reason) == ("failed", "the Recorder saw no step")


def test_nothing_is_counted_after_a_failure(tmp_path: Path) -> None:
    """Step 3 is the one whose operators are counted."""
    made = Recording(tmp_path, 12)

    def loop() -> None:
        with made.of() as recorder:
            for number in range(3):
                with recorder.step() as step:
                    step.loss(1.0)
                    if number == 2:
                        assert _get_current_dispatch_mode() is not None
                        raise ValueError("in the middle")

    with pytest.raises(ValueError, match="in the middle"):
        loop()
    assert _get_current_dispatch_mode() is None
    assert gc.get_freeze_count() == 0


@pytest.mark.parametrize("empties", [True, False])
def test_it_watches_for_the_rules(tmp_path: Path, empties: bool) -> None:
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    made = Recording(tmp_path, 12)
    with made.of(model=model, optimizer=optimizer) as recorder:
        for _ in range(12):
            with recorder.step():
                model(torch.ones(2, 4)).square().mean().backward()
                optimizer.step()
                if empties:
                    optimizer.zero_grad()
    said = {rule.id: found.status for rule, found in answers(made.record())}
    assert said["optimizer_holds_trainable"] == "holds"
    assert said["gradients_start_empty"] == ("holds" if empties else "broken")


def test_a_look_that_failed_is_told_beside_what_the_loop_did_not_show() -> None:
    failed = Result(status="completed", unmeasured={"exact": "the look failed"})
    collector = LoopCollector.__new__(LoopCollector)
    vars(collector).update(
        steps=2,
        _device=torch.device("cpu"),
        _training=SimpleNamespace(finished=lambda *_: failed),
        loop=SimpleNamespace(unmeasured=lambda: {"a": "of the loop"}),
        unmeasured=lambda: {"b": "of the steps"},
    )
    unmeasured = collector._result().unmeasured
    assert unmeasured == {"exact": "the look failed", "a": "of the loop", "b": "of the steps"}


def test_gradients_of_a_closure_are_those_of_its_first_call(tmp_path: Path) -> None:
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=2)
    made = Recording(tmp_path, 3)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(torch.ones(2, 4)).square().mean()
        loss.backward()
        return loss

    with made.of(model=model, optimizer=optimizer) as recorder:
        for _ in range(3):
            with recorder.step() as step:
                step.loss(optimizer.step(closure))
    exact = made.record().exact
    assert exact["first_gradient"]["total"] > 0
    assert not exact["first_gradient"].get("tensors_without_gradient")
