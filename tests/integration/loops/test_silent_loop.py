"""Trainers with loops and steps of their own: recorded by their callbacks, or told why not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

from canary.inputs.embedded import tiny_dir
from canary.training.exact.signals import ExactSignals
from canary.training.look import Look
from canary.training.loops.trainer import TrainerCollector

pytestmark = [pytest.mark.train, pytest.mark.usefixtures("one_thread")]

STEPS = 4
ROWS = [{"input_ids": [1, 40 + n, 41], "labels": [1, 40 + n, 41]} for n in range(8)]


class PlainLoop(Trainer):
    """Its loop is the one of any tutorial, and tells of the end of each step."""

    computed: list[float]
    control: Any
    accumulate = 1
    tells = True

    def _inner_training_loop(self, *_: Any, **__: Any) -> None:  # type: ignore[override]
        self.computed = []
        self.create_optimizer_and_scheduler(STEPS)
        batches = list(self.get_train_dataloader())
        self.model.train()
        if self.tells:
            self.callback_handler.on_train_begin(self.args, self.state, self.control)
        for place, batch in enumerate(batches[: STEPS * self.accumulate]):
            self._one(batch)
            if (place + 1) % self.accumulate == 0:
                self.optimizer.step()
                self.optimizer.zero_grad()
                self.state.global_step += 1
                if self.tells:
                    self.callback_handler.on_step_end(self.args, self.state, self.control)

    def _one(self, batch: Any) -> None:
        loss = self.compute_loss(self.model, batch)
        loss.backward()
        self.computed.append(float(loss.detach()))


class StepLoop(PlainLoop):
    """Its loop calls `training_step`, as a copy of an older loop does."""

    def _one(self, batch: Any) -> None:
        self.current_gradient_accumulation_steps = self.accumulate
        self.computed.append(float(self.training_step(self.model, batch)))


class OwnStep(Trainer):
    """Its `training_step` computes the loss by itself, and takes the labels out of its batch."""

    def training_step(self, model: Any, inputs: Any, *_: Any, **__: Any) -> torch.Tensor:
        model.train()
        labels = inputs.pop("labels")
        loss = model(**inputs, labels=labels).loss
        self.accelerator.backward(loss)
        return loss.detach()


class Silent(PlainLoop):
    """It tells nobody of its steps."""

    tells = False


class HiddenLoop(PlainLoop):
    """Its loop computes the loss by itself."""

    def _one(self, batch: Any) -> None:
        self.model.forward(**batch).loss.backward()


class Undivided(Trainer):
    """Its own `train` tells that it begins, and of no step."""

    def train(self, *_: Any, **__: Any) -> None:  # type: ignore[override]
        self.create_optimizer_and_scheduler(STEPS)
        self.callback_handler.on_train_begin(self.args, self.state, self.control)
        for batch in list(self.get_train_dataloader())[:STEPS]:
            self.model(**batch).loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()


def built(kind: type[Trainer], folder: Path) -> Any:
    arguments = TrainingArguments(
        output_dir=str(folder),
        use_cpu=True,
        per_device_train_batch_size=2 if issubclass(kind, OwnStep) else 1,
        max_steps=STEPS,
        report_to="none",
        disable_tqdm=True,
        save_strategy="no",
        learning_rate=1e-4,
        bf16=False,
    )
    model = AutoModelForCausalLM.from_pretrained(str(tiny_dir()))
    return kind(model=model, args=arguments, train_dataset=ROWS)


def watched(trainer: Any) -> tuple[TrainerCollector, ExactSignals, list[Any]]:
    rows: list[Any] = []
    exact = ExactSignals(trainer, work_step=2)
    look = Look(STEPS, exact, lambda signals: None)
    collector = TrainerCollector(
        trainer,
        rows.append,
        0,
        look=look,
        ends_after_look=True,
    )
    try:
        collector.run(trainer.train)
    finally:
        look.give_up()
        collector.detach()
    return collector, exact, rows


@pytest.mark.parametrize(("kind", "accumulate"), [(PlainLoop, 2), (StepLoop, 1)])
def test_a_loop_that_tells_of_ends_alone_is_recorded(
    tmp_path: Path, kind: type[PlainLoop], accumulate: int
) -> None:
    trainer = built(kind, tmp_path)
    trainer.accumulate = accumulate
    collector, exact, rows = watched(trainer)
    assert [row["step"] for row in rows] == [1, 2, 3, 4]
    mean = accumulate if kind is PlainLoop else 1
    sums = [sum(row["micro_losses"]) / mean for row in rows]
    assert [row["loss"] for row in rows] == pytest.approx(sums)
    assert collector.unmeasured() == {}
    losses = [loss for row in rows for loss in row["micro_losses"]]
    assert losses == trainer.computed
    assert all(len(row["micro_losses"]) == accumulate for row in rows)
    assert all(row["input_tokens"] == 3 * accumulate for row in rows)
    assert all(row["learning_rate"] for row in rows)
    assert all(row["phases"]["optimizer"] > 0 for row in rows)
    found = exact.found
    assert [len(step) for step in found["batches"]] == [accumulate] * STEPS
    assert found["first_gradient"]["total"] > 0
    assert found["first_update"]["tensors_changed"] > 0
    assert found["work"]["operator_total"] > 0
    assert found["memory"]["live_tensors"]
    assert collector.why_no_step() is None


def test_a_loop_watched_is_the_loop_alone(tmp_path: Path) -> None:
    alone = built(PlainLoop, tmp_path / "alone")
    alone.train()
    under = built(PlainLoop, tmp_path / "under")
    watched(under)
    assert under.computed == alone.computed


def test_a_step_without_compute_loss_has_its_batches(tmp_path: Path) -> None:
    _, exact, rows = watched(built(OwnStep, tmp_path))
    assert [row["input_tokens"] for row in rows] == [6] * STEPS
    assert [row["label_tokens"] for row in rows] == [6] * STEPS
    assert [len(step) for step in exact.found["batches"]] == [1] * STEPS


def test_a_loop_that_shows_neither_batches_nor_losses_says_so(tmp_path: Path) -> None:
    collector, exact, rows = watched(built(HiddenLoop, tmp_path))
    assert [row["step"] for row in rows] == [1, 2, 3, 4]
    assert [row["loss"] for row in rows] == [None] * STEPS
    assert exact.found["first_update"]["tensors_changed"] > 0
    found = collector.unmeasured()
    assert [row["samples"] for row in rows] == [None] * STEPS
    reasons = {"exact.batches", "tokens", "stability.loss_values", "perf.samples_per_sec"}
    assert set(found) == reasons
    assert "the training loop of HiddenLoop" in found["exact.batches"]


@pytest.mark.parametrize("kind", [Undivided, Silent])
def test_a_loop_that_tells_of_no_step_says_so(tmp_path: Path, kind: type[Trainer]) -> None:
    collector, _, rows = watched(built(kind, tmp_path))
    assert rows == []
    reason = collector.why_no_step()
    assert reason is not None
    assert f"{kind.__name__} made {STEPS} updates" in reason
    assert "on_step_end" in reason


class Hooked(Trainer):
    """Counts the hooks of its model while it trains."""

    hooks = 0

    def training_step(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        model: Any = self.model
        self.hooks += len(model._forward_pre_hooks) + len(model._forward_hooks)
        self.hooks += torch.autograd.backward is not BACKWARD
        return super().training_step(*args, **kwargs)


BACKWARD = torch.autograd.backward


def test_a_collector_hooks_neither_model_nor_backward(tmp_path: Path) -> None:
    trainer = built(Hooked, tmp_path)
    _, exact, rows = watched(trainer)
    assert len(rows) == STEPS
    assert trainer.hooks == 0
    assert "clipping" not in exact.found


class OwnStepOfTuples(Trainer):
    """The same in a step of its own, which empties its batch."""

    def training_step(self, model: Any, batch: Any, *_: Any, **__: Any) -> torch.Tensor:
        model.train()
        labels, ids = batch.pop(), batch.pop()
        loss = model(input_ids=ids, labels=labels).loss
        self.accelerator.backward(loss)
        return loss.detach()


def of_tuples(kind: type[Trainer], folder: Path, first: int = 0) -> Any:
    trainer = built(kind, folder)
    rows = [torch.tensor(row["input_ids"]) for row in ROWS]
    trainer.train_dataset = [(row, row.clone()) for row in (*rows[first:], *rows[:first])]
    trainer.data_collator = torch.utils.data.default_collate
    trainer.args.remove_unused_columns = False
    return trainer


def test_batches_that_are_lists_are_recorded_by_their_places(tmp_path: Path) -> None:
    kind = OwnStepOfTuples
    collector, exact, rows = watched(of_tuples(kind, tmp_path / "one"))
    assert len(rows) == STEPS
    batches = exact.found["batches"]
    assert [list(step[0]["shapes"]) for step in batches] == [["0", "1"]] * STEPS
    assert set(collector.unmeasured()) == {"tokens"}
    assert "no input_ids" in collector.unmeasured()["tokens"]
    _, other, _ = watched(of_tuples(kind, tmp_path / "other", first=3))
    assert other.found["batches"][0][0]["rows"] != batches[0][0]["rows"]
