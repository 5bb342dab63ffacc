"""Models that return the log-probabilities of a row's last tokens, as actors of PPO do."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
import torch
from torch import nn

from canary.training.relations.inspector import Inspector
from canary.training.relations.wrapped import are_log_probs
from tests.unit.training.relations.tiny import batch, llama


class Said(NamedTuple):
    """What an actor and its critic say, both (rows, length)."""

    logprobs: torch.Tensor
    values: torch.Tensor


class Actor(nn.Module):
    """Computes the head of the completion's tokens only. `at_mask`: counts positions rightly."""

    def __init__(self, at_mask: bool = True, temperature: float = 0.7) -> None:
        super().__init__()
        self.inner = llama()
        self.value = nn.Linear(32, 1)
        self.at_mask, self.temperature = at_mask, temperature

    def forward(self, input_ids: Any, attention_mask: Any, length: int) -> Said:
        """Say the log-probabilities of the last `length` tokens, and values."""
        places = (attention_mask.long().cumsum(1) - 1).clamp(min=0)
        if not self.at_mask:
            places = torch.arange(input_ids.shape[1]).expand_as(input_ids)
        mask = attention_mask if self.at_mask else torch.ones_like(attention_mask)
        hidden = self.inner.model(
            input_ids=input_ids, attention_mask=mask, position_ids=places
        ).last_hidden_state
        states = hidden[:, -length - 1 : -1]
        shares = (self.inner.lm_head(states) / self.temperature).log_softmax(-1)
        chosen = shares.gather(-1, input_ids[:, -length:].unsqueeze(-1)).squeeze(-1)
        return Said(chosen, self.value(states).squeeze(-1))


def found(actor: Actor, length: int = 5) -> dict[str, str]:
    """Train two updates on rows with padding on the left, without training on it."""
    wanted = ["padding_side", "order", "padding", "causality"]
    optimizer = torch.optim.AdamW(actor.parameters(), lr=1e-3)
    looking = Inspector(object(), wanted)
    for seed in range(2):
        inputs = batch(seed, side="left")
        said = actor(inputs["input_ids"], inputs["attention_mask"], length)
        (-said.logprobs.mean() + said.values.square().mean()).backward()
        optimizer.step()
        optimizer.zero_grad()
    return {one["relation"]: one["status"] for one in looking.end()}


def test_an_actor_is_asked_as_a_language_model() -> None:
    assert {*found(Actor()).values()} == {"holds"}


def test_an_actor_that_counts_its_padding_is_broken() -> None:
    assert found(Actor(at_mask=False))["padding_side"] == "broken"


@pytest.mark.parametrize(("length", "cut"), [(11, 0), (4, 0), (4, 7)])
def test_own_log_probabilities_are_told_from_other_values(length: int, cut: int) -> None:
    """`cut`: tokens before those whose logits are known."""
    torch.manual_seed(0)
    ids, logits = torch.randint(0, 40, (2, 12)), torch.randn(2, 12, 40)
    own = (logits[:, :-1] / 0.7).log_softmax(-1).gather(-1, ids[:, 1:].unsqueeze(-1)).squeeze(-1)
    known = logits[:, cut:-1] if cut else logits
    assert are_log_probs(own[:, -length:], known, ids)
    assert not are_log_probs(own[:, -length:] + 0.1, known, ids)
    assert not are_log_probs(own[:, -length:], known, ids.roll(1, 1))
    assert not are_log_probs(torch.randn(2, 3), known, ids)
    assert not are_log_probs(own[:, -length:], known, None)
