"""A GRPO loop that samples until enough groups disagree; groups that agree are left out."""

import random

import torch
from torch import nn

DIGITS, COPY, VOCAB, LENGTH = 8, 8, 9, 3
GROUP, WANTED, MAX_DRAWS, LOW, HIGH = 16, 4, 6, 0.2, 0.28


class Writer(nn.Module):
    """Reads one digit and writes `LENGTH` digits, one after the other."""

    def __init__(self, width=48):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, width)
        self.cell = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, DIGITS)

    def forward(self, ids):
        return self.head(self.cell(self.embed(ids))[0])

    @torch.no_grad()
    def sample(self, start):
        ids = torch.stack([torch.full_like(start, COPY), start], 1)
        for _ in range(LENGTH):
            probs = self(ids)[:, -1].softmax(-1)
            ids = torch.cat([ids, torch.multinomial(probs, 1)], 1)
        return ids

    def logps(self, ids):
        lp = self(ids[:, :-1])[:, 1:].log_softmax(-1)
        return lp.gather(-1, ids[:, 2:, None])[..., 0]


def reward(ids):
    """One if the first two written digits count up from the digit read, else nothing."""
    start = ids[:, 1]
    first = ids[:, 2] == (start + 1) % DIGITS
    second = ids[:, 3] == (start + 2) % DIGITS
    return (first & second).float()


def collect(policy, rng):
    kept, seen = [], []
    for _ in range(MAX_DRAWS):
        start = torch.tensor([rng.randrange(DIGITS) for _ in range(8)])
        ids = policy.sample(start.repeat_interleave(GROUP))
        scores = reward(ids).view(-1, GROUP)
        seen.append(scores.mean().item())
        for group, rows in zip(scores, ids.view(-1, GROUP, ids.shape[1])):
            if group.std() > 0:
                kept.append((rows, (group - group.mean()) / (group.std() + 1e-6)))
        if len(kept) >= WANTED:
            break
    return kept, sum(seen) / len(seen)


def main(steps=28):
    torch.manual_seed(27)
    rng = random.Random(27)
    policy = Writer()
    optimizer = torch.optim.Adam(policy.parameters(), lr=4e-3)
    for step in range(steps):
        kept, mean = collect(policy, rng)
        print(f"step {step} reward {mean:.3f} groups {len(kept)}")
        if not kept:
            continue
        ids = torch.cat([rows for rows, _ in kept])
        advantage = torch.cat([a for _, a in kept])[:, None]
        with torch.no_grad():
            old = policy.logps(ids)
        for _ in range(2):
            ratio = (policy.logps(ids) - old).exp()
            clipped = ratio.clamp(1 - LOW, 1 + HIGH)
            loss = -torch.min(ratio * advantage, clipped * advantage).mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
            optimizer.step()


if __name__ == "__main__":
    main()
