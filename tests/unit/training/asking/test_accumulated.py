"""Weights of micro-batches."""

from __future__ import annotations

import torch

from tests.unit.training.asking.tiny import Loop, batch, llama


class Replay(Loop):
    """Gives every second micro-batch, of older data, a tenth of the weight."""

    made = 0

    def loss(self, one: dict[str, torch.Tensor], tokens: int) -> torch.Tensor:
        """Return the weighted loss."""
        self.made += 1
        return super().loss(one, tokens) * (0.1 if self.made % 2 == 0 else 1.0)


def test_a_weight_that_no_size_explains_is_a_note() -> None:
    found = Replay(llama()).run()["accumulation"]
    assert found["status"] == "note", found
    assert "own weight" in found["doubt"]


class Added(Loop):
    """Adds the gradients of means, as `Trainer` does with a loss that forgets the micro-batches."""

    def loss(self, one: dict[str, torch.Tensor], tokens: int) -> torch.Tensor:
        """Return the mean of one micro-batch."""
        return super().loss(one, tokens) * self.micro_batches


def test_means_whose_gradients_are_added_are_a_note() -> None:
    whole = batch(0)
    found = Added(llama(), normalised=False, batches=lambda _: whole).run()["accumulation"]
    assert found["status"] == "note", found
    assert "means are added" in found["doubt"]
    shared = Loop(llama(), normalised=False, batches=lambda _: whole).run()["accumulation"]
    assert shared["status"] == "holds", shared
