"""Guesses from twenty tokens of a recipe whether it is a how-to, a count or a sorting task."""

import math

import torch
from kitchen import load_tokenizer, recipes
from torch import nn

LENGTH = 20
KINDS = {"How": 0, "Count": 1, "Sort": 2}


class Classifier(nn.Module):
    def __init__(self, vocab, dim=32, heads=4, depth=2, classes=3):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        angles = torch.arange(LENGTH)[:, None] * torch.exp(
            -math.log(1e4) * torch.arange(0, dim, 2) / dim
        )
        self.register_buffer("positions", torch.cat([angles.sin(), angles.cos()], 1))
        layer = nn.TransformerEncoderLayer(
            d_model=dim, nhead=heads, dim_feedforward=4 * dim, dropout=0.0, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.head = nn.Linear(dim, classes)

    def forward(self, input_ids):
        x = self.embed(input_ids) + self.positions
        return self.head(self.encoder(x).mean(1))


torch.manual_seed(77)
tok = load_tokenizer()
rows = recipes(300, seed=77)
inputs, targets = [], []
for row in rows:
    ids = tok(row["prompt"] + " " + row["answer"]).input_ids
    if len(ids) < LENGTH + 2:
        continue
    inputs.append(ids[2 : LENGTH + 2])
    targets.append(KINDS[row["prompt"].split()[0]])
inputs, targets = torch.tensor(inputs), torch.tensor(targets)

model = Classifier(len(tok))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
order = torch.randperm(len(inputs))
for step in range(8):
    rows = order[step * 12 : step * 12 + 12]
    logits = model(inputs[rows])
    loss = nn.functional.cross_entropy(logits, targets[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    right = (logits.argmax(-1) == targets[rows]).float().mean()
    print(f"step {step} loss {loss.item():.4f} accuracy {right.item():.2f}")
