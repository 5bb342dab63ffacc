"""A character-level transformer in one file, in the manner of makemore and minGPT."""

from pathlib import Path
from pydoc_data.topics import topics

import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(1337)
STEPS, BATCH, BLOCK, WIDTH, HEADS, LAYERS = 150, 12, 64, 64, 4, 3
text = "\n".join(topics[name] for name in sorted(topics))[:200_000]
letters = sorted(set(text))
codes = {letter: code for code, letter in enumerate(letters)}
data = torch.tensor([codes[letter] for letter in text])


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.register_buffer("mask", torch.tril(torch.ones(BLOCK, BLOCK)))

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (
            part.view(b, t, HEADS, c // HEADS).transpose(1, 2) for part in self.qkv(x).split(c, 2)
        )
        scores = q @ k.transpose(-2, -1) * (c // HEADS) ** -0.5
        scores = scores.masked_fill(self.mask[:t, :t] == 0, float("-inf"))
        mixed = F.dropout(F.softmax(scores, -1), 0.1, self.training) @ v
        return self.out(mixed.transpose(1, 2).reshape(b, t, c))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1, self.ln2, self.attention = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH), Attention()
        self.mlp = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH), nn.Dropout(0.1)
        )

    def forward(self, x):
        x = x + self.attention(self.ln1(x))
        return x + self.mlp(self.ln2(x))


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(len(letters), WIDTH), nn.Embedding(BLOCK, WIDTH)
        self.blocks = nn.Sequential(*[Block() for _ in range(LAYERS)])
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, len(letters))

    def forward(self, ids, targets=None):
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1]))
        logits = self.head(self.norm(self.blocks(x)))
        if targets is None:
            return logits, None
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten())


model = Transformer()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(STEPS):
    starts = torch.randint(len(data) - BLOCK - 1, (BATCH,)).tolist()
    x = torch.stack([data[i : i + BLOCK] for i in starts])
    y = torch.stack([data[i + 1 : i + BLOCK + 1] for i in starts])
    _, loss = model(x, y)
    model.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    if step % 20 == 0:
        print(f"step {step} loss {loss.item():.6f}")

model.eval()
ids = torch.zeros((1, 1), dtype=torch.long)
for _ in range(40):
    logits, _ = model(ids[:, -BLOCK:])
    ids = torch.cat([ids, torch.multinomial(F.softmax(logits[:, -1], -1), 1)], 1)
print(repr("".join(letters[code] for code in ids[0].tolist())))
Path("out").mkdir(exist_ok=True)
torch.save(model.state_dict(), "out/model.pt")
