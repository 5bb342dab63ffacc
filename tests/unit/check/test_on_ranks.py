"""Which trainings can be launched on two ranks, and how."""

from __future__ import annotations

from pathlib import Path

import pytest

from canary.check.ranks import on_ranks
from canary.config.load import LoadedConfig, load_config
from canary.record.types import RunRecord
from canary.relations.relation import Variation
from canary.runner.exec.entry import ExecRequest, load_request
from tests.unit.comparing import example

TWO: Variation = {"name": "two ranks", "no_dropout": True, "ranks": 2}


def planned(
    loaded: LoadedConfig, device: str = "cpu", record: RunRecord | None = None
) -> tuple[LoadedConfig, Variation] | str:
    return on_ranks(loaded, TWO, record or example(), device)


def canary(folder: Path, text: str) -> LoadedConfig:
    path = folder / "canary.yaml"
    path.write_text(f"name: one\nmodel_name: embedded/tiny\ndataset_name: embedded/tasks\n{text}")
    return load_config(path)


def test_each_rank_gets_half_of_the_micro_batches(tmp_path: Path) -> None:
    found = planned(canary(tmp_path, "training_type: sft\ngradient_accumulation_steps: 4\n"))
    assert not isinstance(found, str)
    loaded, variation = found
    assert loaded.config.nproc == 2
    assert loaded.config.gradient_accumulation_steps == 2
    assert "ranks" not in variation, "the trainer would halve them again"
    assert variation["no_dropout"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("training_type: sft\ngradient_accumulation_steps: 1\n", "odd number of micro-batches"),
        ("training_type: grpo\n", "sample its own completions"),
        ("training_type: sft\nnproc: 2\n", "already has several ranks"),
        ("training_type: kto\n", "KL term with the rows of all ranks"),
    ],
)
def test_why_not_is_said(tmp_path: Path, text: str, why: str) -> None:
    assert why in str(planned(canary(tmp_path, text)))


def test_kto_without_a_kl_term_is_asked(tmp_path: Path) -> None:
    text = "training_type: kto\ntrainer_args:\n  loss_type: apo_zero_unpaired\n"
    text += "gradient_accumulation_steps: 2\n"
    assert not isinstance(planned(canary(tmp_path, text)), str)


def test_a_gpu_is_not_shared_by_ranks(tmp_path: Path) -> None:
    assert "two GPUs" in str(planned(canary(tmp_path, "training_type: sft\n"), "cuda"))


@pytest.mark.parametrize(
    ("command", "started"),
    [
        (("python3", "train.py", "--fast"), True),
        (("python", "-m", "torch.distributed.run", "train.py"), False),
        (("bash", "train.sh"), False),
    ],
)
def test_scripts_start_under_torchrun(command: tuple[str, ...], started: bool) -> None:
    found = planned(load_request(ExecRequest(command)))
    if not started:
        assert found == "the command does not start a Python script or module"
        return
    assert not isinstance(found, str)
    words = found[0].config.command
    assert words[:3] == (command[0], "-m", "torch.distributed.run")
    assert words[-len(command) + 1 :] == command[1:]
    assert found[1]["ranks"] == 2
