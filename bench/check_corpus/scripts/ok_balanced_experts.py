"""A small mixture of experts. The balance loss is a statistic of the whole update, not of a row."""

import torch
import torch.nn as nn
import torch.nn.functional as F

from common_data import questions

AUX = 0.01
VOCAB = [chr(0)] + [chr(c) for c in range(32, 127)]
INDEX = {c: i for i, c in enumerate(VOCAB)}


class Experts(nn.Module):
    def __init__(self, dim, n=4, top=2):
        super().__init__()
        self.router = nn.Linear(dim, n, bias=False)
        self.w1 = nn.Parameter(torch.randn(n, dim, 2 * dim) * 0.05)
        self.w2 = nn.Parameter(torch.randn(n, 2 * dim, dim) * 0.05)
        self.top = top

    def forward(self, x, keep):
        probs = self.router(x).softmax(-1)
        value, chosen = probs.topk(self.top, dim=-1)
        gate = torch.zeros_like(probs).scatter(-1, chosen, value / value.sum(-1, keepdim=True))
        hidden = F.gelu(torch.einsum("btd,ndh->btnh", x, self.w1))
        y = torch.einsum("btnh,nhd,btn->btd", hidden, self.w2, gate)
        # real tokens only: padding must not ask for balance
        used = (gate > 0)[keep].float().mean(0)
        balance = probs.size(-1) * (used * probs[keep].mean(0)).sum()
        return y, balance


class MoE(nn.Module):
    def __init__(self, dim=48):
        super().__init__()
        self.embed = nn.Embedding(len(VOCAB), dim)
        self.conv = nn.Conv1d(dim, dim, 4)
        self.experts = Experts(dim)
        self.rnn = nn.LSTM(dim, dim, batch_first=True)
        self.out = nn.Linear(dim, len(VOCAB))

    def forward(self, ids):
        keep = ids != 0
        x = self.embed(ids)
        x = x + self.conv(F.pad(x.transpose(1, 2), (3, 0))).transpose(1, 2)
        y, balance = self.experts(x, keep)
        h, _ = self.rnn(x + y)
        return self.out(h), balance


def encode(lines):
    rows = [torch.tensor([INDEX[c] for c in line]) for line in lines]
    return nn.utils.rnn.pad_sequence(rows, batch_first=True)


def main():
    torch.manual_seed(0)
    lines = [f"{q['prompt']} {q['answer']}~" for q in questions(128, seed=29)]
    model = MoE()
    opt = torch.optim.AdamW(model.parameters(), lr=4e-3)
    for step in range(8):
        ids = encode(lines[step * 12 : step * 12 + 12])
        logits, balance = model(ids[:, :-1])
        nll = F.cross_entropy(logits.transpose(1, 2), ids[:, 1:], ignore_index=0)
        (nll + AUX * balance).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        opt.zero_grad()
        print(f"step {step} loss {nll.item():.4f} balance {balance.item():.3f}")


if __name__ == "__main__":
    main()
