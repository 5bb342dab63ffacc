"""Gradients that are changed between micro-batches, and parameters that get none."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from tests.unit.training.relations.tiny import Loop, llama


class Clipping(Loop):
    """Clips gradients in each micro-batch, by a hook of the model's call."""

    largest = 1e-3

    def loss(self, one: dict[str, torch.Tensor], tokens: int) -> torch.Tensor:
        """Clip what is there, then compute the loss of the next micro-batch."""
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.largest)
        return super().loss(one, tokens)


@pytest.mark.parametrize(("largest", "status"), [(1e-3, "broken"), (1e6, "holds")])
def test_clipping_in_each_micro_batch_is_broken(largest: float, status: str) -> None:
    loop = Clipping(llama(), wanted=("accumulation",))
    loop.largest = largest
    found = loop.run()["accumulation"]
    assert found["status"] == status, found
    if status == "broken":
        was, now = found["values"]
        assert was > now > 0
        assert "after micro-batch 0" in found["message"]


class Zeroing(Loop):
    """Sets gradients to zero before each backward pass: `forward`, `zero_grad`, `backward`."""

    def loss(self, one: dict[str, torch.Tensor], tokens: int) -> torch.Tensor:
        """Set gradients to zero after the forward pass."""
        found = super().loss(one, tokens)
        for value in self.model.parameters():
            value.grad = None
        return found


@pytest.mark.parametrize(("micro_batches", "status"), [(2, "broken"), (1, "not applicable")])
def test_gradients_that_are_lost_are_broken(micro_batches: int, status: str) -> None:
    loop = Zeroing(llama(), wanted=("accumulation",), micro_batches=micro_batches)
    found = loop.run()["accumulation"]
    assert found["status"] == status, found


class Two(Zeroing):
    """Trains two models in turn, each with an optimizer of its own."""

    def loss(self, one: dict[str, torch.Tensor], tokens: int) -> torch.Tensor:
        """Let the other model have a pass before."""
        if not hasattr(self, "second"):
            self.second = llama()
        said = self.second(**one).logits
        said.square().mean().backward()
        return super().loss(one, tokens)


def test_two_models_in_turn_lose_nothing() -> None:
    loop = Two(llama(), wanted=("accumulation",), micro_batches=1)
    assert loop.run()["accumulation"]["status"] != "broken"


def cut_off(*, reentrant: bool) -> Any:
    """A model whose embeddings are frozen, with a checkpoint around each block."""
    model = llama()
    model.config.use_cache = False
    model.model.embed_tokens.requires_grad_(False)
    for block in model.model.layers:
        forward = block.forward

        def around(hidden: Any, *args: Any, forward: Any = forward, **kwargs: Any) -> Any:
            def run(hidden: Any) -> Any:
                return forward(hidden, *args, **kwargs)

            return checkpoint(run, hidden, use_reentrant=reentrant)

        block.forward = around
    return model


@pytest.mark.parametrize("reentrant", [True, False])
def test_blocks_without_a_gradient_are_broken(reentrant: bool) -> None:
    model = cut_off(reentrant=reentrant)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)
    found = Loop(model, optimizer=optimizer, wanted=("checkpointing", "frozen")).run()
    assert found["frozen"]["status"] == ("broken" if reentrant else "holds"), found
    # What the question switches is put back: else the embeddings would let gradients through.
    assert not model.model.embed_tokens._forward_hooks
    if reentrant:
        assert "18 of 20 trainable tensors have no gradient" in found["frozen"]["message"]


def test_reentrant_checkpoints_are_not_asked_for_gradients_again() -> None:
    model = cut_off(reentrant=True)
    model.model.embed_tokens.requires_grad_(True)
    found = Loop(model, wanted=("replay",)).run()["replay"]
    assert found["status"] == "not applicable", found
    assert "use_reentrant" in found["message"]
