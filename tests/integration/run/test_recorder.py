"""The Recorder in loops that train."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from canary.compare.exact.stages import LEARNED_STAGES
from canary.compare.report import Comparison
from canary.compare.stats import compare_to_baseline
from canary.record.folder import load_record
from canary.record.jsonio import read_rows
from canary.record.types import RunRecord
from tests.integration.conftest import canary
from tests.unit.recording import Recording

EXAMPLES = Path(__file__).parents[3] / "examples"
pytestmark = pytest.mark.train

Batch = dict[str, torch.Tensor]


class Words(torch.nn.Module):
    """A model of next tokens, small enough to train within a test."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(50, 8)
        self.frozen = torch.nn.Linear(8, 8).requires_grad_(False)
        self.out = torch.nn.Linear(8, 50)

    def get_input_embeddings(self) -> torch.nn.Embedding:
        return self.embedding

    def forward(self, batch: Batch) -> torch.Tensor:
        logits = self.out(torch.tanh(self.frozen(self.embedding(batch["input_ids"]))))
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten())


def whole(batch: Batch) -> Batch:
    return batch


def train(
    folder: Path,
    *,
    rate: float = 1e-2,
    micro: int = 1,
    change: Callable[[Batch], Batch] = whole,
    leak: list[torch.Tensor] | None = None,
    settings: dict[str, Any] | None = None,
    clip: float | None = None,
    scale: float = 1.0,
    steps: int = 20,
) -> RunRecord:
    """A loop of `steps` steps of `micro` micro-batches, recorded."""
    torch.manual_seed(0)
    model = Words()
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    generator = torch.Generator().manual_seed(1)
    made = Recording(folder, 12)
    with made.of("words", model=model, optimizer=optimizer, config=settings) as recorder:
        for _ in range(steps):
            for place in range(micro):
                ids = torch.randint(3, 50, (4, 9), generator=generator)
                batch = change({"input_ids": ids[:, :-1], "labels": ids[:, 1:].clone()})
                with recorder.step(batch) as step:
                    with step.phase("forward"):
                        loss = model(batch) * scale
                    step.loss(loss)
                    with step.phase("backward"):
                        loss.backward()
                    if leak is not None:
                        leak.append(loss)
                    if place + 1 < micro:
                        continue
                    if clip is not None:
                        step.grad_norm(torch.nn.utils.clip_grad_norm_(model.parameters(), clip))
                    optimizer.step()
                    optimizer.zero_grad()
                    step.log(reward=-loss.detach())
    return made.record()


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> RunRecord:
    return train(tmp_path_factory.mktemp("clean"))


def against(clean: RunRecord, changed: RunRecord) -> Comparison:
    return compare_to_baseline(changed, clean, gates=())


@pytest.mark.end_to_end
def test_the_record_holds_the_packages_that_the_process_imported(clean: RunRecord) -> None:
    assert {"torch", "pytest"} <= clean.env["packages"].keys()
    assert "ruff" not in clean.env["packages"]


@pytest.mark.end_to_end
def test_the_record_holds_every_stage_of_the_exact_lane(clean: RunRecord) -> None:
    exact = clean.exact
    assert exact["steps"] == 12
    assert len(exact["batches"]) == 12
    assert exact["model"]["trainable_tensors"] == 3
    assert exact["first_loss"]["loss"] == clean.stability.loss_values[0]
    assert exact["first_gradient"]["total"] > 0
    assert exact["first_update"]["tensors_changed"] == 3
    assert exact["trajectory"]["learning_rates"] == [1e-2] * 12
    assert exact["trajectory"]["grad_norms"][0] == pytest.approx(exact["first_gradient"]["total"])
    assert exact["work"]["forwards"] == 1
    assert exact["work"]["tokens_fed"] == 32
    assert exact["frozen"] == {
        "tensors": 2,
        "changed": [],
        "reference_changed": None,
        "final_parameters_sha256": exact["frozen"]["final_parameters_sha256"],
    }
    assert len(clean.stability.loss_values) == 20
    assert clean.perf.step_time.count == 7
    assert clean.phases["forward"] > 0
    assert clean.phases["optimizer"] > 0
    assert clean.tokens["label_tokens"] == 20 * 32
    assert clean.rl["reward"].count == 7


def test_a_loop_that_repeats_itself_differs_in_nothing_exact(
    clean: RunRecord, tmp_path: Path
) -> None:
    found = against(clean, train(tmp_path))
    assert found.differences == ()
    statuses = {check.name: check.status for check in found.checks if check.lane == "exact"}
    assert {statuses[stage] for stage in LEARNED_STAGES if stage not in ("data", "rollout")} == {
        "pass"
    }
    assert not found.failed_checks


def masked(batch: Batch) -> Batch:
    batch["labels"][:, -2:] = -100
    return batch


@pytest.mark.parametrize(
    ("changes", "stage", "signal", "verdict"),
    [
        ({"rate": 2e-2}, "first_update", "learning_rate", "changed"),
        ({"change": masked}, "batches", "label_tokens", "changed"),
        ({"leak": []}, "memory", "live_tensors", "regression"),
        ({"rate": 2e-2, "settings": {"learning_rate": 2e-2}}, "config", "learning_rate", "changed"),
    ],
)
def test_a_fault_is_caught_at_its_stage(
    clean: RunRecord,
    tmp_path: Path,
    changes: dict[str, Any],
    stage: str,
    signal: str,
    verdict: str,
) -> None:
    found = against(clean, train(tmp_path, **changes))
    assert found.verdict == verdict
    assert found.first_difference is not None
    assert (found.first_difference.stage, found.first_difference.signal) == (stage, signal)


def test_the_loop_trains_as_it_does_alone(clean: RunRecord) -> None:
    """Bit for bit: the losses of the recorded loop are those of the same loop without it."""
    torch.manual_seed(0)
    model = Words()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    generator = torch.Generator().manual_seed(1)
    losses = []
    for _ in range(20):
        ids = torch.randint(3, 50, (4, 9), generator=generator)
        loss = model({"input_ids": ids[:, :-1], "labels": ids[:, 1:].clone()})
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert clean.stability.loss_values == losses


def only_run(folder: Path) -> Path:
    (found,) = [path for path in folder.iterdir() if not path.name.startswith(".")]
    return found


def test_the_example_of_the_docs_leaves_a_complete_record(tmp_path: Path) -> None:
    text = (EXAMPLES.parent / "docs" / "exec.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    (tmp_path / "loop.py").write_text(code)
    words = ("-o", str(tmp_path / "out"), "--", sys.executable, "loop.py")
    ended = canary("exec", *words, cwd=tmp_path)
    assert ended.code == 0, ended.err
    record = load_record(only_run(tmp_path / "out"))
    assert record.status == "completed"
    assert len(record.stability.loss_values) == 30
    assert record.exact["first_update"]["tensors_changed"] == 3
    assert record.rl["reward"].count > 0


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example under `canary exec`, cut after 36 of 40 steps."""
    folder = tmp_path_factory.mktemp("watched")
    words = ("--name", "given", "--max-steps", "36", "-o", str(folder / "out"))
    ended = canary("exec", *words, "--", sys.executable, str(EXAMPLES / "loop.py"), cwd=folder)
    assert ended.code == 0, ended.err
    return only_run(folder / "out")


def test_the_loop_ends_after_max_steps(watched: Path) -> None:
    record = load_record(watched)
    assert len(record.stability.loss_values) == 36
    assert [launch.look_steps for launch in record.launches] == [12]
    assert record.config["trainer"] == "canary.Recorder"
    assert record.name == "given"
    assert record.perf.cpu_utilization_avg is not None


def test_the_process_of_a_loop_that_goes_on_is_ended(tmp_path: Path) -> None:
    code = (
        "from canary import Recorder\n"
        "with Recorder('goes-on') as recorder:\n"
        "    for number in range(9):\n"
        "        with recorder.step() as step: step.loss(number)\n"
        "    print('whole loop')\n"
    )
    (tmp_path / "loop.py").write_text(code)
    words = ("--max-steps", "4", "-o", str(tmp_path / "out"), "--", sys.executable, "loop.py")
    ended = canary("exec", *words, cwd=tmp_path)
    assert ended.code == 0, ended.err
    assert "ended after step 4; what comes after the loop does not run" in ended.err
    run = only_run(tmp_path / "out")
    record = load_record(run)
    assert record.stability.loss_values == [0.0, 1.0, 2.0, 3.0]
    # The Recorder's own name holds; the folder was there before anybody knew it.
    assert (record.name, record.config["name"]) == ("goes-on", "goes-on")
    assert "-loop-" in run.name
    assert "whole loop" not in (run / "log.txt").read_text()


def outside(folder: Path, rate: float) -> RunRecord:
    """A loop whose optimizer steps behind its `recorder.step`."""
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    made = Recording(folder, 4)
    secret = {"HF_TOKEN": "hidden", "nested": {"api_key": "hidden too", "depth": 2}}
    with made.of(model=model, optimizer=optimizer, config=secret) as recorder:
        for number in range(12):
            batch = torch.full((3, 4), 1.0 + number)
            with recorder.step({"x": batch}) as step:
                loss = model(batch).square().mean()
                step.loss(loss)
                with step.phase("backward"):
                    loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    record = made.record()
    rows = list(read_rows(made.run.steps))
    assert [row["samples"] for row in rows] == [3] * 12
    assert all(len(row["micro_losses"]) == 1 for row in rows)
    assert "hidden" not in (made.run.path / "metrics.json").read_text()
    return record


def test_an_optimizer_that_steps_behind_its_step_belongs_to_it(tmp_path: Path) -> None:
    found = compare_to_baseline(outside(tmp_path, 2e-3), outside(tmp_path, 1e-3))
    assert found.first_difference is not None
    assert found.first_difference.stage == "first_update"
