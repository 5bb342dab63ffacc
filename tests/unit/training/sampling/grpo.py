"""A small GRPO loop whose engine can be spoilt, looked at by an inspector."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from canary.relations.relation import Outcome
from canary.training.relations import inspector
from canary.training.sampling import watch
from tests.unit.training.relations.tiny import EOS, VOCABULARY, llama

PROMPT, COMPLETION, GROUP = 4, 6, 4
NAMES = ("sampler_logprobs", "sampler_weights", "reward_function")


@contextmanager
def watched() -> Iterator[watch.SamplingWatch]:
    """Replace the watch of the process by a new one."""
    fresh = watch.SamplingWatch()
    fresh.begin()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inspector, "SAMPLING", fresh)
        yield fresh
    fresh.end()


def sample(engine: Any, prompts: torch.Tensor, temperature: float = 1.0) -> torch.Tensor:
    """Sample token by token, without a cache."""
    ids = prompts
    with torch.no_grad():
        for _ in range(COMPLETION):
            logits = engine(input_ids=ids).logits[:, -1].float()
            drawn = torch.multinomial((logits / temperature).softmax(-1), 1)
            ids = torch.cat([ids, drawn], dim=1)
    return ids


def generate(engine: Any, prompts: torch.Tensor, temperature: float = 1.0) -> torch.Tensor:
    """Sample with transformers."""
    return engine.generate(
        prompts,
        attention_mask=torch.ones_like(prompts),
        do_sample=True,
        top_k=0,
        temperature=temperature,
        max_new_tokens=COMPLETION,
        min_new_tokens=2,
    )


@dataclass
class Grpo:
    """Three updates, each on one group of completions."""

    policy: Any
    engine: Any = None
    """Another model; None: the policy samples."""
    sync: Callable[[Any, Any, int], None] = lambda policy, engine, update: engine.load_state_dict(
        policy.state_dict()
    )
    """Called before each sampling."""
    sampler: Callable[..., torch.Tensor] = sample
    sampled_at: float = 1.0
    trained_at: float = 1.0
    wanted: tuple[str, ...] = NAMES
    report: Callable[[torch.Tensor], None] = lambda ids: None
    reward: Callable[[torch.Tensor], torch.Tensor] = lambda ids: (ids % 5).float().mean(1)
    updates: int = 3
    trainer: Any = None

    def run(self) -> dict[str, Outcome]:
        """Train, and return the outcomes by relation."""
        with watched():
            return self.trained()

    def trained(self) -> dict[str, Outcome]:
        """Train inside a watch."""
        torch.manual_seed(5)
        optimizer = torch.optim.AdamW(self.policy.parameters(), lr=1e-2)
        looking = inspector.Inspector(self.trainer or object(), self.wanted)
        for update in range(self.updates):
            prompts = torch.randint(3, VOCABULARY, (1, PROMPT)).expand(GROUP, PROMPT)
            if self.engine is not None:
                self.sync(self.policy, self.engine, update)
            self.policy.eval()
            ids = self.sampler(self.engine or self.policy, prompts, self.sampled_at)
            self.report(ids)
            self.policy.train()
            rewards = self.reward(ids[:, PROMPT:])
            advantages = (rewards - rewards.mean()) / (rewards.std() + 1e-4)
            self.loss(ids, advantages).backward()
            optimizer.step()
            optimizer.zero_grad()
        return {one["relation"]: one for one in looking.end()}

    def loss(self, ids: torch.Tensor, advantages: torch.Tensor) -> torch.Tensor:
        """Return the policy gradient's loss, with the ratio of the first update."""
        completions = ids[:, PROMPT:]
        ends = completions.eq(EOS).long()
        kept = ((ends.cumsum(1) - ends) == 0).float()
        mask = torch.cat([torch.ones_like(ids[:, :PROMPT]), kept.long()], dim=1)
        logits = self.policy(input_ids=ids, attention_mask=mask).logits[:, PROMPT - 1 : -1]
        known = (logits / self.trained_at).log_softmax(-1)
        found = known.gather(-1, completions.unsqueeze(-1)).squeeze(-1)
        ratio = (found - found.detach()).exp()
        return -(ratio * advantages.unsqueeze(1) * kept).sum() / kept.sum()


def copied(policy: Any, dtype: torch.dtype | None = None) -> Any:
    """Return a second model with the same weights."""
    made = copy.deepcopy(policy).eval()
    return made if dtype is None else made.to(dtype)


def tiny(**changed: Any) -> Any:
    """A policy whose logits are spread."""
    model = llama(**changed)
    with torch.no_grad():
        model.lm_head.weight.mul_(30)
    return model
