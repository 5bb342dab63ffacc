"""A trainer with its own loop, as trl's PPO: whole steps, and an end where one is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments

from canary.inputs.embedded import tiny_dir
from canary.training.exact.signals import ExactSignals
from canary.training.look import Look, no_look
from canary.training.loops.trainer import TrainerCollector
from tests.integration.ppo.watched_ppo import ppo_trainer

pytestmark = [pytest.mark.train, pytest.mark.usefixtures("one_thread")]

STEPS, UPDATES, BATCH, LONGEST = 4, 2, 2, 6


class LoopTrainer(Trainer):
    """Samples, then updates twice, and calls back as PPO does: at the end of each step only."""

    control: Any

    def train(self, *_: Any, **__: Any) -> None:  # type: ignore[override]
        self.computed: list[list[float]] = []
        self.control = self.callback_handler.on_train_begin(self.args, self.state, self.control)
        prompts = torch.tensor([[1, 40, 41], [1, 42, 43]])
        self.state.max_steps = STEPS
        for step in range(1, STEPS + 1):
            output = self.model.generate(
                input_ids=prompts,
                attention_mask=torch.ones_like(prompts),
                max_new_tokens=LONGEST,
                do_sample=False,
                return_dict_in_generate=True,
            )
            self.computed.append([self._update(output.sequences) for _ in range(UPDATES)])
            self.state.global_step = step
            self.log({"objective/kl": 0.5 * step, "eps": 7, "lr": 1.0})
            self.control = self.callback_handler.on_step_end(self.args, self.state, self.control)
        self.control = self.callback_handler.on_train_end(self.args, self.state, self.control)

    def _update(self, sequences: torch.Tensor) -> float:
        loss = self.model(input_ids=sequences, labels=sequences).loss
        self.accelerator.backward(loss)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return float(loss.detach())


def own_trainer(folder: Path) -> LoopTrainer:
    model = AutoModelForCausalLM.from_pretrained(str(tiny_dir()))
    arguments = TrainingArguments(
        output_dir=str(folder),
        use_cpu=True,
        per_device_train_batch_size=BATCH,
        report_to="none",
        disable_tqdm=True,
        learning_rate=1e-4,
    )
    tokenizer = AutoTokenizer.from_pretrained(str(tiny_dir()))
    trainer = LoopTrainer(
        model=model, args=arguments, train_dataset=[0] * 8, processing_class=tokenizer
    )
    trainer.create_optimizer_and_scheduler(STEPS * UPDATES)
    trainer.model, trainer.optimizer = trainer.accelerator.prepare(model, trainer.optimizer)
    return trainer


def test_each_step_of_an_own_loop_is_a_row(tmp_path: Path) -> None:
    trainer = own_trainer(tmp_path)
    rows: list[Any] = []
    collector = TrainerCollector(trainer, rows.append, 0, look=no_look())
    collector.run(trainer.train)
    collector.detach()
    assert [row["step"] for row in rows] == [1, 2, 3, 4]
    assert [row["micro_losses"] for row in rows] == trainer.computed
    assert [row["loss"] for row in rows] == [sum(losses) / UPDATES for losses in trainer.computed]
    told = [{"objective/kl": 0.5 * n, "updates": UPDATES} for n in (1, 2, 3, 4)]
    assert [row["rl"] for row in rows] == told
    for row in rows:
        assert sum(row["phases"].values()) == pytest.approx(row["wall_s"])
        assert all(row["phases"][p] > 0 for p in ("generation", "forward", "backward", "optimizer"))
        assert 0 < row["completion_tokens"] <= BATCH * LONGEST
        assert row["input_tokens"] == BATCH * 3 + row["completion_tokens"]
        assert row["samples"] == BATCH
        assert row["learning_rate"] is not None
    for owner, name in ((trainer.model, "generate"), (trainer.model, "forward"), (trainer, "log")):
        assert name not in vars(owner), f"{name} is still wrapped"


def test_an_own_loop_ends_where_it_is_asked_to_with_every_exact_stage(tmp_path: Path) -> None:
    trainer = own_trainer(tmp_path)
    rows: list[Any] = []
    exact = ExactSignals(trainer, work_step=2)
    collector = TrainerCollector(
        trainer,
        rows.append,
        0,
        look=Look(3, exact, lambda signals: None),
        stop_after=3,
        ends_after_look=True,
    )
    assert collector.run(trainer.train) is None
    assert [row["step"] for row in rows] == [1, 2, 3]
    assert collector.was_cut
    found = exact.found
    assert [len(step) for step in found["batches"]] == [1, 1, 1]
    assert found["batches"][0][0]["completion_tokens"] == rows[0]["completion_tokens"]
    assert found["first_gradient"]["total"] > 0
    assert found["first_update"]["tensors_changed"] > 0
    assert found["work"]["operator_total"] > 0
    assert found["frozen"]["changed"] == []


def test_a_loop_that_tells_of_its_steps_ends_after_the_last_wanted_one(tmp_path: Path) -> None:
    trainer = ppo_trainer(tmp_path, max_steps=4, ppo={"ppo_epochs": 3})
    rows: list[Any] = []
    norms: list[float] = []
    clip = trainer.accelerator.clip_grad_norm_

    def keep(*args: Any, **kwargs: Any) -> Any:
        norms.append(float(clip(*args, **kwargs)))
        return torch.tensor(norms[-1])

    trainer.accelerator.clip_grad_norm_ = keep
    collector = TrainerCollector(trainer, rows.append, 0, look=no_look(), stop_after=2)
    collector.run(trainer.train)
    assert [row["step"] for row in rows] == [1, 2]
    assert [row["grad_norm"] for row in rows] == pytest.approx([max(norms[:3]), max(norms[3:])])
    assert [len(row["micro_losses"]) for row in rows] == [3, 3]
