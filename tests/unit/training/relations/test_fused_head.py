"""Models that get labels and return their log-probabilities, as trl's with a fused head."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from canary.training.relations.inspector import Inspector
from tests.unit.training.relations.tiny import batch, llama


class Fused(nn.Module):
    """Returns the log-probability of each label but the first."""

    def __init__(self, **changed: Any) -> None:
        super().__init__()
        self.inner = llama(**changed)
        self.config = self.inner.config

    def forward(self, input_ids: Any, attention_mask: Any, labels: Any) -> Any:
        """Say the log-probabilities."""
        hidden = self.inner.model(input_ids=input_ids, attention_mask=attention_mask)
        # Not by a call of the head: a fused kernel takes its weight.
        logits = (hidden.last_hidden_state @ self.inner.lm_head.weight.T)[:, :-1]
        after = labels[:, 1:]
        known = logits.log_softmax(-1).gather(-1, after.clamp(min=0).unsqueeze(-1)).squeeze(-1)
        return SimpleNamespace(log_probs=known.masked_fill(after == -100, 0.0))


def test_a_fused_head_keeps_its_vocabulary() -> None:
    """A part of the model may be wider than its vocabulary."""
    model = Fused(hidden_size=64)
    looking = Inspector(object(), ["causality", "neighbour"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    inputs = batch(0)
    assert model.config.hidden_size > model.config.vocab_size
    said = model(**inputs, labels=inputs["input_ids"])
    (-said.log_probs.mean()).backward()
    optimizer.step()
    assert {one["status"] for one in looking.end()} == {"holds"}


@pytest.mark.parametrize(
    ("shifted", "status", "words"),
    [
        (0, "holds", "labels are the next token"),
        (1, "broken", "labels are the token after the next"),
    ],
)
def test_labels_that_a_fused_head_gets_are_compared(shifted: int, status: str, words: str) -> None:
    model = Fused()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    looking = Inspector(object(), ["next_token"])
    for seed in range(2):
        inputs = batch(seed)
        labels = inputs["input_ids"].masked_fill(inputs["attention_mask"] == 0, -100)
        labels = torch.roll(labels, -shifted, 1)
        said = model(**inputs, labels=labels)
        (-said.log_probs.sum() / (labels[:, 1:] != -100).sum()).backward()
        optimizer.step()
        optimizer.zero_grad()
    (found,) = looking.end()
    assert found["status"] == status, found
    assert words in found["message"]
