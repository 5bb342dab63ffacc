"""`canary check` on online RL: an engine in another process, and trl's trainers."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from canary.inputs.embedded import data_file, tiny_dir
from tests.integration.check.test_check import checked
from tests.integration.exec.user_scripts import PYTHON

LOOP = Path(__file__).parent / "engine_loop.py"
ASKED = ("sampler_logprobs", "sampler_weights", "reward_function")
ONLY = [word for name in ASKED for word in ("--only", name)]


def broken(found: dict[str, Any]) -> set[str]:
    return {name for name, one in found.items() if one["status"] == "broken"}


@pytest.mark.train
@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "expected", "words"),
    [
        ("whole", set(), ""),
        ("stale", {"sampler_logprobs", "sampler_weights"}, "the engine is 1 update behind"),
        ("dtype", {"sampler_logprobs"}, "the engine holds bfloat16"),
        ("template", {"sampler_logprobs"}, "the sampler's prompt has 6 tokens and the trainer's 4"),
    ],
)
def test_an_engine_in_another_process(
    tmp_path: Path, fault: str, expected: set[str], words: str
) -> None:
    script = tmp_path / "loop.py"
    script.write_text(LOOP.read_text())
    code, found = checked(tmp_path, *ONLY, "-o", "here", "--", PYTHON, "loop.py", fault)
    assert broken(found) == expected, found
    assert code == (1 if expected else 0)
    assert words in " ".join(one["message"] for one in found.values())
    if fault in ("whole", "dtype"):
        assert found["sampler_weights"]["status"] == "holds"
    if fault == "whole":
        assert {one["status"] for one in found.values()} == {"holds"}
        _same_losses(tmp_path)


def _same_losses(folder: Path) -> None:
    """The questions leave the training as it is, bit for bit."""
    alone = subprocess.run(
        [PYTHON, "loop.py", "whole"], cwd=folder, capture_output=True, text=True, check=True
    )
    losses = [line for line in alone.stdout.splitlines() if line.startswith("loss")]
    (log,) = (folder / "here").rglob("log.txt")
    asked = [line for line in log.read_text().splitlines() if line.startswith("loss")]
    assert len(losses) == 4
    assert asked == losses


TRL = """
import time
import torch
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
import trl.trainer.KIND_trainer as module
from trl import TITLEConfig, TITLETrainer

def reward(completions, **columns):
    return [float(len(str(one)) % 7) for one in completions]

BEFORE
data = load_dataset("json", data_files=DATA, split="train").select(range(32))
arguments = TITLEConfig(
    "out", max_steps=12, per_device_train_batch_size=4, num_generations=4,
    gradient_accumulation_steps=1, max_completion_length=12, learning_rate=1e-2, logging_steps=1,
    report_to="none", bf16=False, use_cpu=True, disable_tqdm=True, save_strategy="no",
    temperature=0.9)
trainer = TITLETrainer(
    model=AutoModelForCausalLM.from_pretrained(MODEL), args=arguments, reward_funcs=reward,
    train_dataset=data, processing_class=AutoTokenizer.from_pretrained(MODEL))
trainer.train()
"""


def trl_script(folder: Path, kind: str, before: str = "") -> tuple[str, ...]:
    """Write a script with a trainer of trl; return what follows the options."""
    text = TRL.replace("BEFORE", before)
    text = text.replace("KIND", kind).replace("TITLE", kind.upper())
    text = text.replace("DATA", repr(str(data_file("prompt_only"))))
    (folder / "train.py").write_text(text.replace("MODEL", repr(str(tiny_dir()))))
    return "--", PYTHON, "train.py"


@pytest.mark.train
@pytest.mark.slow
def test_nothing_is_broken_in_healthy_online_training(tmp_path: Path) -> None:
    code, found = checked(tmp_path, "--quick", *trl_script(tmp_path, "grpo"))
    assert broken(found) == set(), found
    assert code == 0
    assert found["sampler_logprobs"]["status"] == "holds"
    assert found["reward_function"]["status"] == "holds"
    assert found["sampler_weights"]["status"] == "not applicable"
