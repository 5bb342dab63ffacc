"""Code of the user's own in real trainings: rewards, batches, callbacks."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from canary.errors import ConfigError
from canary.training.trainers import build_trainer
from tests.integration.trainers.test_workload import logged, make_spec, write_jsonl

pytestmark = pytest.mark.train

CODE = """
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments, TrainerCallback

seen = []

def brevity(prompts, completions, **columns):
    seen.append(sorted(columns))
    return [1.0 / (1 + len(text)) for text in completions]

def third(prompts, completions, **columns):
    return [0.25] * len(completions)

class Collator:
    def __init__(self, tokenizer):
        self.pad = tokenizer.pad_token_id

    def __call__(self, rows):
        longest = max(len(row["input_ids"]) for row in rows)
        ids = [row["input_ids"] + [self.pad] * (longest - len(row["input_ids"])) for row in rows]
        ids = torch.tensor(ids)
        return {
            "input_ids": ids,
            "attention_mask": (ids != self.pad).long(),
            "labels": ids.masked_fill(ids == self.pad, -100),
        }

class Counts(TrainerCallback):
    def on_init_end(self, args, state, control, **kwargs):
        seen.append("init")

    def on_step_end(self, args, state, control, **kwargs):
        seen.append(state.global_step)

def make_callback():
    return Counts()

READY = Counts()

"""


@pytest.fixture(autouse=True)
def _code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "own_code.py").write_text(CODE)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
    sys.modules.pop("own_code", None)


def seen() -> list[Any]:
    return list(sys.modules["own_code"].seen)


def refusal(tmp_path: Path, training_type: str, **changes: Any) -> str:
    with pytest.raises(ConfigError) as raised:
        build_trainer(make_spec(tmp_path, training_type, **changes))
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_rewards_of_the_users_own_need_no_answer_and_get_the_columns(tmp_path: Path) -> None:
    rows = [{"prompt": f"{n} + 1 =", "topic": "sums"} for n in range(16)]
    spec = make_spec(
        tmp_path,
        "grpo",
        dataset_name=str(write_jsonl(tmp_path / "prompts.jsonl", rows)),
        reward_functions=("own_code:brevity", "own_code:third"),
    )
    trainer = build_trainer(spec)
    trainer.train()
    assert trainer.state.global_step == 3
    assert "topic" in seen()[0]
    assert logged(trainer, "rewards/third/mean") == [0.25] * 3
    assert all(0 < value <= 1 for value in logged(trainer, "rewards/brevity/mean"))


def test_a_collator_of_the_users_own_makes_the_batches(tmp_path: Path) -> None:
    spec = make_spec(tmp_path, "sft", data_collator="own_code:Collator")
    trainer = build_trainer(spec)
    batch = next(iter(trainer.get_train_dataloader()))
    # trl's own masks the prompt; this one learns every token.
    assert int(batch["labels"].ne(-100).sum()) == int(batch["attention_mask"].sum())
    trainer.train()


@pytest.mark.parametrize("name", ["Counts", "make_callback", "READY"])
def test_callbacks_are_called(tmp_path: Path, name: str) -> None:
    build_trainer(make_spec(tmp_path, "sft", callbacks=(f"own_code:{name}",))).train()
    assert seen() == ["init", 1, 2, 3]


def test_vllm_where_it_is_not_installed_is_one_clear_line(tmp_path: Path) -> None:
    args = {"use_vllm": True, "vllm_mode": "colocate"}
    text = refusal(tmp_path, "rloo", trainer_args=args)
    assert text == (
        "trainer_args.use_vllm needs vllm, which is not installed (pip install "
        '"trl[vllm]", or remove trainer_args.use_vllm)'
    )
