"""GRPO in a loop of its own on a small arithmetic task."""

import random

import torch
from torch import nn

DIGITS = 10
PLUS, EQUALS, VOCAB = 10, 11, 12
GROUP, PROMPTS, INNER, CLIP = 8, 6, 2, 0.2


class Policy(nn.Module):
    """Reads `a + b =` and answers with one digit, the sum modulo ten."""

    def __init__(self, width=48):
        super().__init__()
        self.tokens = nn.Embedding(VOCAB, width)
        self.places = nn.Embedding(4, width)
        layer = nn.TransformerEncoderLayer(width, 4, 96, dropout=0.0, batch_first=True)
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, DIGITS)

    def forward(self, x):
        h = self.tokens(x) + self.places(torch.arange(x.shape[1]))
        return self.head(self.body(h)[:, -1])


def draw_tasks(rng, n):
    pairs = [(rng.randrange(4), rng.randrange(4)) for _ in range(n)]
    return torch.tensor([[a, PLUS, b, EQUALS] for a, b in pairs])


def reward(tasks, answers):
    """One for the right digit, less for one that is near."""
    right = (tasks[:, 0] + tasks[:, 2]) % DIGITS
    return torch.exp(-(answers - right).abs().float())


def collect(policy, rng):
    tasks = draw_tasks(rng, PROMPTS).repeat(GROUP, 1)
    with torch.no_grad():
        dist = torch.distributions.Categorical(logits=policy(tasks))
        answers = dist.sample()
        old = dist.log_prob(answers)
    scores = reward(tasks, answers)
    grouped = scores.view(-1, GROUP)
    advantage = (grouped - grouped.mean(1, keepdim=True)) / (grouped.std(1, keepdim=True) + 1e-4)
    return tasks, answers, old, advantage.flatten(), scores


def main(steps=20):
    torch.manual_seed(3)
    rng = random.Random(3)
    policy = Policy()
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-3)
    for step in range(steps):
        tasks, answers, old, advantage, scores = collect(policy, rng)
        for _ in range(INNER):
            dist = torch.distributions.Categorical(logits=policy(tasks))
            ratio = torch.exp(dist.log_prob(answers) - old)
            clipped = ratio.clamp(1 - CLIP, 1 + CLIP)
            loss = -torch.min(ratio * advantage, clipped * advantage).mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
            optimizer.step()
        print(f"step {step} reward {scores.mean():.3f} entropy {dist.entropy().mean():.3f}")


if __name__ == "__main__":
    main()
