"""Gradients that are changed between micro-batches."""

from __future__ import annotations

import pytest
import torch

from tests.unit.training.asking.tiny import Loop, llama


class Clipping(Loop):
    """Clips gradients in each micro-batch, by a hook of the model's call."""

    largest = 1e-3

    def loss(self, one: dict[str, torch.Tensor], tokens: int) -> torch.Tensor:
        """Clip what is there, then compute the loss of the next micro-batch."""
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.largest)
        return super().loss(one, tokens)


@pytest.mark.parametrize(("largest", "status"), [(1e-3, "broken"), (1e6, "holds")])
def test_clipping_in_each_micro_batch_is_broken(largest: float, status: str) -> None:
    loop = Clipping(llama())
    loop.largest = largest
    found = loop.run()["accumulation"]
    assert found["status"] == status, found
    if status == "broken":
        assert "after micro-batch 0" in found["words"]


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
