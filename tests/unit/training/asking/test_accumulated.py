"""Weights of micro-batches."""

from __future__ import annotations

import torch

from tests.unit.training.asking.tiny import Loop, llama


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
