"""Train a small GRU language model and validate every two updates."""

import random

import torch
import torch.nn as nn

from common_data import build_tokenizer, questions


class GRULM(nn.Module):
    def __init__(self, vocab, dim=64, p=0.3):
        super().__init__()
        self.drop = nn.Dropout(p)
        self.emb = nn.Embedding(vocab, dim)
        self.gru = nn.GRU(dim, dim, num_layers=2, dropout=p, batch_first=True)
        self.dec = nn.Linear(dim, vocab)

    def forward(self, x):
        out, _ = self.gru(self.drop(self.emb(x)))
        return self.dec(self.drop(out))


def batches(ids, size, pad):
    for i in range(0, len(ids), size):
        chunk = ids[i : i + size]
        width = max(map(len, chunk))
        yield torch.tensor([c + [pad] * (width - len(c)) for c in chunk])


def compute_loss(model, x, pad):
    logits = model(x[:, :-1])
    return nn.functional.cross_entropy(
        logits.reshape(-1, logits.size(-1)), x[:, 1:].reshape(-1), ignore_index=pad, reduction="sum"
    ), (x[:, 1:] != pad).sum()


@torch.no_grad()
def evaluate(model, data, pad):
    model.eval()
    total = count = 0
    for x in batches(data, 16, pad):
        loss, n = compute_loss(model, x, pad)
        total += loss.item()
        count += n.item()
    return total / count


random.seed(4)
torch.manual_seed(4)
tok = build_tokenizer()
ids = [
    tok(f"{q['prompt']} {q['answer']}").input_ids + [tok.eos_token_id]
    for q in questions(180, seed=9)
]
random.shuffle(ids)
valid, train = ids[:40], ids[40:]
pad = tok.pad_token_id

model = GRULM(len(tok))
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
model.train()
stream = batches(train, 8, pad)
for update in range(1, 9):
    micro = [next(stream), next(stream)]
    total, count = 0.0, 0
    for x in micro:
        loss, n = compute_loss(model, x, pad)
        loss.backward()
        total += loss.item()
        count += n.item()
    for p in model.parameters():
        p.grad /= count
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    line = f"update {update} train {total / count:.4f}"
    if update % 2 == 0:
        line += f" valid {evaluate(model, valid, pad):.4f}"
    print(line)
