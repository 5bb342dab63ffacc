"""A small online loop: several completions per prompt, advantages and a KL term that can be spoilt.

The names say no algorithm: a test gives the loop the name of one.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from tests.unit.training.asking.tiny import VOCABULARY, Answers, Looked, llama

GROUPS, EACH, COMPLETION, PROMPT = 3, 4, 10, 4
Advantages = Callable[[torch.Tensor], torch.Tensor]
"""Advantages of rewards, both of shape (groups, completions)."""


def by_group(rewards: torch.Tensor) -> torch.Tensor:
    """Normalise within each group."""
    centred = rewards - rewards.mean(1, keepdim=True)
    return centred / (rewards.std(1, keepdim=True) + 1e-4)


def by_batch(rewards: torch.Tensor) -> torch.Tensor:
    """Normalise over all completions."""
    return (rewards - rewards.mean()) / (rewards.std() + 1e-4)


@dataclass
class Online:
    """Four rounds of sampling."""

    advantages: Advantages = by_group
    kl: float = 0.0
    """Weight of the KL term of the loss; below 0 it has the wrong sign."""
    in_reward: float = 0.0
    """Weight of the KL term of the rewards of each token."""
    passes: int = 1
    """Updates per round."""
    spread: bool = False
    """Whether a round is spread over two updates, each with half of each group. The first gets the
    best of the first group and the worst of the second one."""
    by_length: bool = True
    """Whether each row is divided by its tokens."""
    temperature: float = 1.0
    rounds: int = 4
    rate: float = 5e-3

    def run(self) -> Answers:
        """Train, and return the answers by question."""
        torch.manual_seed(7)
        self.policy = tiny()
        self.reference = copy.deepcopy(self.policy).eval()
        self.optimizer = torch.optim.AdamW(self.policy.parameters(), lr=self.rate)
        looking = Looked()
        for _ in range(self.rounds):
            self.round()
        return looking.answers()

    def round(self) -> None:
        """Sample, then learn from it."""
        prompts = torch.randint(3, VOCABULARY, (GROUPS, PROMPT)).repeat_interleave(EACH, 0)
        ids = self.sampled(prompts)
        # Completions of unequal lengths.
        lengths = torch.randint(COMPLETION - 4, COMPLETION + 1, (len(ids), 1))
        kept = (torch.arange(COMPLETION) < lengths).float()
        # The prompts differ in how much reward they give.
        rewards = (ids[:, PROMPT:] % 5 * kept).sum(1) / 5 + ids[:, 0] % 7
        self.policy.eval()
        advantages = self.advantages(rewards.view(GROUPS, EACH)).flatten().unsqueeze(1)
        with torch.no_grad():
            old = self.log_probs(self.policy, ids, kept)
            known = self.log_probs(self.reference, ids, kept)
        wanted = advantages + self.in_reward * (known - old).flip(1).cumsum(1).flip(1)
        order = torch.randperm(len(ids))
        self.policy.train()
        for some in halves(advantages) if self.spread else [order] * self.passes:
            self.update(ids[some], kept[some], wanted.expand_as(kept)[some], old[some], known[some])

    def sampled(self, prompts: torch.Tensor) -> torch.Tensor:
        """Sample token by token."""
        self.policy.eval()
        ids = prompts
        with torch.no_grad():
            for _ in range(COMPLETION):
                logits = self.policy(input_ids=ids).logits[:, -1] / self.temperature
                ids = torch.cat([ids, torch.multinomial(logits.softmax(-1), 1)], dim=1)
        return ids

    def update(
        self,
        ids: torch.Tensor,
        kept: torch.Tensor,
        wanted: torch.Tensor,
        old: torch.Tensor,
        known: torch.Tensor,
    ) -> None:
        """Learn from some completions."""
        own = self.log_probs(self.policy, ids, kept)
        further = known - own
        gain = (own - old).exp() * wanted - self.kl * (further.exp() - further - 1)
        sizes = kept.sum(1, keepdim=True) if self.by_length else COMPLETION
        (-(gain * kept / sizes).sum(1).mean()).backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def log_probs(self, model: Any, ids: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:
        """Return the log-probability of each token of the completions."""
        mask = torch.cat([torch.ones_like(ids[:, :PROMPT]), kept.long()], dim=1)
        logits = model(input_ids=ids, attention_mask=mask).logits[:, PROMPT - 1 : -1]
        known = (logits / self.temperature).log_softmax(-1)
        return known.gather(-1, ids[:, PROMPT:, None]).squeeze(-1)


def halves(advantages: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return the rows of two updates."""
    best = advantages.view(GROUPS, EACH).argsort(1, descending=True)
    best = best + EACH * torch.arange(GROUPS).unsqueeze(1)
    first = torch.cat([best[0, :2], best[1, 2:], best[2, 1:3]])
    return first, torch.cat([best[0, 2:], best[1, :2], best[2, ::3]])


def tiny(**changed: Any) -> Any:
    """A policy whose logits are spread."""
    model = llama(**changed)
    with torch.no_grad():
        model.lm_head.weight.mul_(15)
    return model


class GRPO(Online):
    """Calls itself so."""


class ReinforcePlusPlus(GRPO):
    """Normalises over the batch on purpose."""
