"""Trainers whose inner loop calls the model, clips and updates by itself: seen at the model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Trainer

from tests.integration.loops.test_silent_loop import STEPS, PlainLoop, built, watched

pytestmark = [pytest.mark.train, pytest.mark.usefixtures("one_thread")]


class ModelLoop(PlainLoop):
    """Its loop calls nothing but the model, and clips as torch does."""

    most = 1e9

    def _one(self, batch: Any) -> None:
        loss = self.loss_of(batch)
        loss.backward()
        self.computed.append(float(loss.detach()))
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.most)

    def loss_of(self, batch: Any) -> torch.Tensor:
        return self.model(**batch).loss


class ByPlace(ModelLoop):
    """The model gets its ids by their place, and answers in a tuple."""

    def loss_of(self, batch: Any) -> torch.Tensor:
        ids, rest = batch["input_ids"], {k: v for k, v in batch.items() if k != "input_ids"}
        return self.model(ids, **rest, return_dict=False)[0]


class LooksTwice(ModelLoop):
    """It evaluates, and looks at the model without gradients, within its steps."""

    def loss_of(self, batch: Any) -> torch.Tensor:
        self.model.eval()
        self.model(**batch)
        self.model.train()
        with torch.no_grad():
            self.model(**batch)
        return super().loss_of(batch)


class BesideItsMethod(ModelLoop):
    """It computes the loss by the trainer's method, and calls the model once more."""

    def loss_of(self, batch: Any) -> torch.Tensor:
        loss = self.compute_loss(self.model, batch)
        self.model(**batch)
        return loss


class TellsOfEnds(ModelLoop):
    """It calls back at the end of each step, and at no beginning."""

    control: Any

    def _one(self, batch: Any) -> None:
        if not self.computed:
            self.callback_handler.on_train_begin(self.args, self.state, self.control)
        super()._one(batch)
        self.state.global_step += 1
        self.control = self.callback_handler.on_step_end(self.args, self.state, self.control)


@pytest.mark.parametrize(
    ("kind", "accumulate"),
    [(ModelLoop, 2), (ByPlace, 1), (LooksTwice, 2), (BesideItsMethod, 1), (TellsOfEnds, 1)],
)
def test_a_loop_that_calls_its_model_shows_batches_and_losses_there(
    tmp_path: Path, kind: type[ModelLoop], accumulate: int
) -> None:
    trainer = built(kind, tmp_path)
    trainer.accumulate = accumulate
    collector, exact, rows = watched(trainer)
    assert [row["step"] for row in rows] == [1, 2, 3, 4]
    assert [loss for row in rows for loss in row["micro_losses"]] == trainer.computed
    means = [sum(row["micro_losses"]) / accumulate for row in rows]
    assert [row["loss"] for row in rows] == pytest.approx(means)
    assert [row["samples"] for row in rows] == [accumulate] * STEPS
    assert all(row["input_tokens"] == row["label_tokens"] == 3 * accumulate for row in rows)
    batches = exact.found["batches"]
    assert [len(step) for step in batches] == [accumulate] * STEPS
    assert {"input_ids", "labels"} <= set(batches[0][0]["shapes"])
    assert collector.unmeasured() == {}


def test_gradients_are_read_before_the_loop_clips_them(tmp_path: Path) -> None:
    whole, clipped = built(ModelLoop, tmp_path), built(ModelLoop, tmp_path)
    clipped.most = 0.5
    (_, exact, _), (_, cut, rows) = watched(whole), watched(clipped)
    assert cut.found["first_gradient"] == exact.found["first_gradient"]
    assert exact.found["clipping"]["before"] == exact.found["clipping"]["applied"]
    found = cut.found["clipping"]
    assert found["applied"] == pytest.approx([0.5] * STEPS, rel=1e-4)
    assert all(norm is not None and norm > 1 for norm in found["before"])
    assert [row["grad_norm"] for row in rows] == found["before"]


class Hooked(Trainer):
    """Counts the hooks of its model while it trains."""

    hooks = 0

    def training_step(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        model: Any = self.model
        self.hooks += len(model._forward_pre_hooks) + len(model._forward_hooks)
        self.hooks += torch.autograd.backward is not BACKWARD
        return super().training_step(*args, **kwargs)


BACKWARD = torch.autograd.backward


def test_a_trainer_with_the_library_s_loop_has_no_hook(tmp_path: Path) -> None:
    trainer = built(Hooked, tmp_path)
    _, exact, rows = watched(trainer)
    assert len(rows) == STEPS
    assert trainer.hooks == 0
    assert "clipping" not in exact.found


class Fails(ModelLoop):
    """It fails in its second step."""

    def loss_of(self, batch: Any) -> torch.Tensor:
        if self.computed:
            raise ZeroDivisionError
        return super().loss_of(batch)


def test_model_and_backward_are_left_as_they_were(tmp_path: Path) -> None:
    trainer = built(Fails, tmp_path)
    with pytest.raises(ZeroDivisionError):
        watched(trainer)
    assert not trainer.model._forward_pre_hooks
    assert not trainer.model._forward_hooks
    assert torch.autograd.backward is BACKWARD
