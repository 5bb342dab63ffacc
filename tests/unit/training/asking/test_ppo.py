"""The built-in PPO trainer's model says log-probabilities of its completions alone."""

from __future__ import annotations

from types import SimpleNamespace

import torch

from canary.training.trainers.ppo.model import ActorCritic, Request
from tests.unit.training.asking.tiny import Answers, Looked, batch, llama

LENGTH = 5


class Trainer:
    """Says that it is PPO, as the built-in trainer does."""

    args = SimpleNamespace(ppo_epochs=1)

    def compute_loss(self) -> None: ...


def trained(dropout: float = 0.0) -> Answers:
    """Make two updates on completions of 5 tokens with advantages of both signs."""
    model = ActorCritic(llama(attention_dropout=dropout))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    looked, request = Looked(Trainer()), Request(1.0)
    for update in range(2):
        made = batch(update, side="left")
        inputs = (made["input_ids"], made["attention_mask"], LENGTH, request)
        model.eval()
        with torch.no_grad():
            old = model(*inputs).log_probs
        model.train()
        said = model(*inputs)
        ratio = (said.log_probs - old).exp()
        (-(ratio * torch.tensor([[1.0], [-1.0]])).mean() + said.values.square().mean()).backward()
        optimizer.step()
        optimizer.zero_grad()
    return looked.answers()


def test_calls_of_the_built_in_ppo_are_read() -> None:
    found = trained()
    for name in ("first_ratio", "causality", "neighbour", "padding_side"):
        assert found[name]["status"] == "holds", (name, found[name])


def test_dropout_of_ppo_breaks_its_first_ratio() -> None:
    assert trained(dropout=0.3)["first_ratio"]["status"] == "broken"
