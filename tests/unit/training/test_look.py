"""The look ends after its steps, in every loop, and leaves nothing behind."""

from __future__ import annotations

import gc
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.optim.optimizer import _global_optimizer_post_hooks, _global_optimizer_pre_hooks
from torch.utils._python_dispatch import _get_current_dispatch_mode

from canary.config.spans import look_steps, warmup_steps
from canary.protocol.job import JOB, Job
from canary.record.folder import load_record
from canary.record.jsonio import read_rows
from canary.runner.exec.command import MARKS, SITE
from canary.training.exact.operators import LiveTensors, WorkCounter, _Counting
from canary.training.exact.parameters import Gradients, UpdateCapture
from canary.training.exact.signals import ExactSignals
from canary.training.launch import TrainingLaunch
from tests.unit.recording import Recording

STEPS = 14
OF_A_LOOK = (ExactSignals, Gradients, UpdateCapture, WorkCounter, LiveTensors, _Counting)

Measure = Callable[[torch.nn.Module, torch.optim.Optimizer], None]


def state(model: torch.nn.Module, optimizer: Any) -> dict[str, Any]:
    """What a look could leave in this process: objects, tensors, their bytes, hooks and modes."""
    gc.collect()
    alive = gc.get_objects()
    tensors = [one for one in alive if issubclass(type(one), torch.Tensor)]
    optimizer = getattr(optimizer, "optimizer", optimizer)
    return {
        "objects": sum(type(one) in OF_A_LOOK for one in alive),
        "tensors": len(tensors),
        "bytes": sum(one.nbytes for one in tensors),
        "backward": torch.autograd.backward,
        "modes": _get_current_dispatch_mode(),
        "frozen": gc.get_freeze_count(),
        "of the optimizer": len(optimizer._optimizer_step_pre_hooks)
        + len(optimizer._optimizer_step_post_hooks),
        "of optimizers": len(_global_optimizer_pre_hooks) + len(_global_optimizer_post_hooks),
        "of modules": sum(
            len(module._forward_hooks)
            + len(module._forward_pre_hooks)
            + len(module._backward_hooks)
            for module in model.modules()
        ),
        "of parameters": sum(len(one._backward_hooks or ()) for one in model.parameters()),
    }


def job(folder: Path, looked: int, **changes: Any) -> Job:
    (folder / "scratch").mkdir(parents=True)
    return Job(
        launch=0,
        config_file="",
        rows_file=str(folder / "steps.jsonl"),
        result_file=str(folder / "result.json"),
        scratch_dir=str(folder / "scratch"),
        cache_dir=str(folder / "cache"),
        rows_dir=str(folder / "rows"),
        look_steps=looked,
        **changes,
    )


def flags(rows_file: Path) -> list[bool]:
    return [bool(row.get("look")) for row in read_rows(rows_file)]


class Ended(Exception):
    """Ends a training in the middle of a step."""


def by_recorder(folder: Path, looked: int, measure: Measure, steps: int = STEPS) -> list[bool]:
    """Train with a Recorder; `measure` is called inside each step."""
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    made = Recording(folder / "runs", looked)
    with made.of(model=model, optimizer=optimizer) as recorder:
        for _ in range(steps):
            with recorder.step({"x": torch.ones(2, 4)}) as step:
                loss = model(torch.ones(2, 4)).square().mean()
                loss.backward()
                step.loss(loss)
                del loss
                measure(model, optimizer)
                optimizer.step()
                optimizer.zero_grad()
    made.record()
    return flags(made.run.steps)


def by_trainer(
    folder: Path, looked: int, measure: Measure, steps: int = STEPS, **more: Any
) -> list[bool]:
    """Train with `transformers.Trainer`; `measure` is called before each update."""
    from transformers import Trainer, TrainerCallback, TrainingArguments

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(4, 1)

        def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"loss": (self.linear(x) - labels).square().mean()}

    class Measures(TrainerCallback):
        def on_pre_optimizer_step(self, *_: Any, **known: Any) -> None:
            measure(known["model"], known["optimizer"])

    torch.manual_seed(0)
    settings: dict[str, Any] = {"use_cpu": True, "report_to": "none", "disable_tqdm": True}
    arguments = TrainingArguments(str(folder), max_steps=steps, save_strategy="no", **settings)
    rows = [{"x": torch.ones(4), "labels": torch.ones(1)} for _ in range(8)]
    trainer = Trainer(Model(), arguments, train_dataset=rows, callbacks=[Measures()])  # type: ignore[arg-type]
    launch = TrainingLaunch(job(folder, looked, **more), 0.0)
    collector = launch.attach(trainer)
    try:
        collector.run(trainer.train)
        launch.write(launch.completed(trainer))
    except Ended as error:
        from canary.protocol.failure import describe_failure

        launch.write(describe_failure(error))
        raise
    finally:
        collector.detach()
    return flags(folder / "steps.jsonl")


LOOPS = [by_recorder, by_trainer]
Loop = Callable[..., list[bool]]


@pytest.fixture(autouse=True)
def no_job(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv(JOB, raising=False)
    yield
    while _get_current_dispatch_mode() is not None:
        torch.utils._python_dispatch._pop_mode()
    gc.unfreeze()


def after(loop: Loop, folder: Path, looked: int, at: int, **more: Any) -> dict[str, Any]:
    """The state at a step."""
    found: dict[str, Any] = {}
    steps = itertools.count(1)

    def measure(*now: Any) -> None:
        if next(steps) == at:
            found.update(state(*now))

    loop(folder, looked, measure, **more)
    return found


@pytest.mark.parametrize("loop", LOOPS)
def test_a_step_after_the_look_is_one_of_a_training_without(loop: Loop, tmp_path: Path) -> None:
    after(loop, tmp_path / "first", 0, at=1, steps=1)  # what libraries load once
    plain = after(loop, tmp_path / "plain", 0, at=6)
    looked = after(loop, tmp_path / "looked", 4, at=6)
    assert looked == plain
    assert plain["objects"] == plain["frozen"] == 0


def test_rows_of_the_look_are_flagged_and_a_short_training_has_a_third(tmp_path: Path) -> None:
    def pass_by(*_: Any) -> None: ...

    short = by_trainer(tmp_path / "short", 12, pass_by, steps=7)
    assert short == [True] * 2 + [False] * 5
    assert by_trainer(tmp_path / "one", 1, pass_by, steps=4) == [True] + [False] * 3


@pytest.mark.spread(2)
@pytest.mark.parametrize(("loop", "failing"), [(by_recorder, 1), (by_trainer, 3)])
def test_a_training_that_fails_in_its_look_leaves_nothing(
    loop: Loop, failing: int, tmp_path: Path
) -> None:
    """Operators are counted in step 3."""
    before = state(torch.nn.Linear(1, 1), torch.optim.SGD([torch.zeros(1)]))
    kept: list[Any] = []

    def fail(model: torch.nn.Module, optimizer: Any) -> None:
        kept[:] = [*kept, model][-failing:]
        if len(kept) == failing:
            raise Ended

    with pytest.raises(Ended):
        loop(tmp_path, 12, fail)
    left = state(kept[0], torch.optim.SGD([torch.zeros(1)]))
    for name in ("objects", "backward", "modes", "frozen", "of optimizers", "of modules"):
        assert left[name] == before[name], name


def test_a_training_that_ends_in_its_look_keeps_what_was_seen(tmp_path: Path) -> None:
    def pass_by(*_: Any) -> None: ...

    assert by_recorder(tmp_path, 12, pass_by, steps=2) == [True, True]
    (run,) = (tmp_path / "runs").iterdir()
    assert load_record(run).exact["steps"] == 2
    assert (_get_current_dispatch_mode(), gc.get_freeze_count()) == (None, 0)


@pytest.mark.parametrize(("place", "counted"), [("trainer", True), ("other", False)])
def test_files_in_the_trainers_folder_are_the_trainings(
    place: str, counted: bool, tmp_path: Path
) -> None:
    """A reward function may write beside checkpoints; the rest of the folder is the canary's."""
    numbers = itertools.count()

    def write(*_: Any) -> None:
        folder = tmp_path / "scratch" / place
        folder.mkdir(exist_ok=True)
        (folder / str(next(numbers))).write_text("found")

    by_trainer(tmp_path, 3, write, steps=9)
    calls = json.loads((tmp_path / "result.json").read_text())["calls"]
    assert calls["files_opened"] == (9 if counted else 0)


PLAIN = """
import gc, json, sys, torch
from torch.utils._python_dispatch import _get_current_dispatch_mode
torch.manual_seed(0)
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.AdamW(model.parameters())
for number in range(8):
    loss = model(torch.ones(2, 4)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if number in (1, 6):
        gc.collect()
        alive = gc.get_objects()
        tensors = [one for one in alive if issubclass(type(one), torch.Tensor)]
        own = [type(one) for one in alive if str(type(one).__module__).startswith("canary")]
        of_look = [kind.__name__ for kind in own if kind.__name__ in sys.argv[1].split(",")]
        found = [len(tensors), sum(one.nbytes for one in tensors), of_look, gc.get_freeze_count()]
        print(json.dumps([*found, str(_get_current_dispatch_mode())]))
        del alive, tensors
"""


def plain_loop(folder: Path, looked: int) -> list[Any]:
    """The state of a plain loop under `canary exec` in its seventh step."""
    marks = folder / "marks"
    marks.mkdir(parents=True)
    job(folder, looked).write(folder / "job.json")
    kinds = ",".join(kind.__name__ for kind in OF_A_LOOK)
    watched = {"PYTHONPATH": str(SITE), JOB: str(folder / "job.json"), MARKS: str(marks)}
    done = subprocess.run(
        [sys.executable, "-c", PLAIN, kinds],
        env=os.environ | watched,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    during, over = (json.loads(line) for line in done.stdout.splitlines())
    assert bool(during[2]) == bool(looked), (during, done.stderr)
    assert flags(folder / "steps.jsonl") == [True] * looked + [False] * (8 - looked)
    calls = json.loads((folder / "result.json").read_text())["calls"]
    own = {"files_opened": 0, "bytes_written": len(done.stdout)}
    assert own.items() <= calls.items(), "files of the canary are not the training's"
    return list(over)


@pytest.mark.train
@pytest.mark.slow
def test_a_plain_loop_after_its_look_is_one_without(tmp_path: Path) -> None:
    plain = plain_loop(tmp_path / "plain", 0)
    assert plain_loop(tmp_path / "looked", 3) == plain
    assert plain[2:] == [[], 0, "None"]


@pytest.mark.parametrize(
    ("steps", "looked", "warmup"), [(100, 12, 4), (40, 12, 4), (30, 10, 4), (9, 3, 1), (2, 1, 0)]
)
def test_the_look_is_a_third_at_most_and_the_warmup_a_fifth_of_the_rest(
    steps: int, looked: int, warmup: int
) -> None:
    assert look_steps(12, steps) == looked
    assert warmup_steps(looked, steps) == warmup


def sums(folder: Path) -> list[float]:
    """What the weights of a recorded loop add up to at each step."""
    found: list[float] = []
    by_recorder(folder, 4, lambda model, _: found.append(float(model.weight.detach().sum())))
    return found


@pytest.fixture(scope="module")
def plain_sums(tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    return sums(tmp_path_factory.mktemp("plain"))


@pytest.mark.spread(4)
@pytest.mark.parametrize(
    "part",
    [
        "exact.signals.own_method",
        "exact.signals.describe_model",
        "exact.signals.describe_batch",
        "exact.signals.gradient_norms",
        "exact.parameters.gradient_norms",
        "exact.signals.UpdateCapture",
        "exact.operators._size",
        "look.describe_data",
    ],
)
def test_an_error_of_the_canary_in_the_look_ends_the_look_and_not_the_training(
    part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plain_sums: list[float]
) -> None:
    def fails(*_: Any, **__: Any) -> Any:
        raise RuntimeError("out of memory, or anything else")

    monkeypatch.setattr(f"canary.training.{part}", fails)
    assert sums(tmp_path) == plain_sums
    assert len(plain_sums) == STEPS
    assert _get_current_dispatch_mode() is None
    (folder,) = (tmp_path / "runs").iterdir()
    record = load_record(folder)
    assert record.status == "completed"
    assert not record.exact, "half of a look is none"
    assert "the look failed" in record.unmeasured["exact"]
    assert "anything else" in record.unmeasured["exact"]
