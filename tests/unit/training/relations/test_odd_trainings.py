"""Odd models, batches and losses of a user do not end the training, and change nothing in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import torch
from torch import nn

from canary.training.relations.another_way import WiderBatches
from canary.training.relations.references import Updates
from canary.training.relations.scored import ScoredRows
from tests.unit.training.relations.tiny import Loop, llama


class Unwilling:
    """A config that cannot be read."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("it is not loaded")


class Unready(nn.Module):
    """A model of one's own whose config cannot be read."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = llama()
        self.config = Unwilling()

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> Any:
        return self.inner(input_ids=input_ids, attention_mask=attention_mask)


def test_what_goes_wrong_beside_a_training_does_not_reach_it() -> None:
    found = Loop(Unready(), wanted=("causality", "frozen")).run()
    for one in found.values():
        assert one["status"] == "undecided", one
        assert one["message"] == (
            "the training cannot be looked at: RuntimeError: it is not loaded"
        )


def test_losses_of_a_generator_reach_backward() -> None:
    updates = Updates(ScoredRows())
    weight = torch.ones((), requires_grad=True)
    updates.begin()
    try:
        torch.autograd.backward(loss for loss in [weight * 3])  # type: ignore[arg-type]
        assert float(weight.grad or 0) == 3
        complex_loss = (weight * 1j).reshape(1)
        torch.autograd.backward(complex_loss, torch.ones(1, dtype=torch.complex64))
    finally:
        updates.end()
    assert not updates._losses, "neither is a loss that can be read"


class Raising(Mapping[str, Any]):
    """A batch that loads its entries, and cannot."""

    def __getitem__(self, name: str) -> Any:
        raise RuntimeError("it is not loaded")

    def __iter__(self) -> Iterator[str]:
        return iter(["input_ids"])

    def __len__(self) -> int:
        return 1


def circle() -> dict[str, Any]:
    """A batch that holds itself."""
    found: dict[str, Any] = {"input_ids": torch.tensor([[5, 6, 0], [7, 8, 9]])}
    found["batch"] = found
    return found


@pytest.mark.parametrize(
    ("batch", "words"),
    [
        (circle(), "it is nested too deep"),
        (Raising(), "RuntimeError: it is not loaded"),
        ([torch.zeros(1)] * 2_000, "it has more than 1,024 tensors"),
    ],
)
def test_a_batch_that_cannot_be_read_is_left_alone(batch: Any, words: str) -> None:
    wider = WiderBatches(7)
    assert wider.changed(batch) is batch
    wider.trained_on([3])
    assert wider.why_not() == f"more padding of a batch is not clear: {words}"
