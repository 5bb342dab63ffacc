"""A decoder without position embeddings: ALiBi slopes, bf16 autocast, fp32 loss."""

import torch
import torch.nn.functional as F
from torch import nn

from common_data import build_tokenizer, questions


def alibi(heads, length):
    """(heads, length, length): slope times distance; -inf for the future."""
    slopes = torch.tensor([2 ** (-8 * (h + 1) / heads) for h in range(heads)])
    distance = torch.arange(length)[None, :] - torch.arange(length)[:, None]
    bias = slopes[:, None, None] * distance.float()
    return bias.masked_fill(distance > 0, float("-inf"))


class Layer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.h = heads
        self.n1, self.n2 = nn.RMSNorm(dim), nn.RMSNorm(dim)
        self.q, self.kv, self.o = nn.Linear(dim, dim), nn.Linear(dim, 2 * dim), nn.Linear(dim, dim)
        self.gate, self.up, self.down = nn.Linear(dim, 96), nn.Linear(dim, 96), nn.Linear(96, dim)

    def forward(self, x, bias):
        b, t, d = x.shape
        y = self.n1(x)
        k, v = self.kv(y).chunk(2, -1)
        q, k, v = (z.view(b, t, self.h, d // self.h).transpose(1, 2) for z in (self.q(y), k, v))
        att = F.scaled_dot_product_attention(q, k, v, attn_mask=bias.to(q.dtype))
        x = x + self.o(att.transpose(1, 2).reshape(b, t, d))
        y = self.n2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class AlibiLM(nn.Module):
    def __init__(self, vocab, dim=48, heads=4, depth=2):
        super().__init__()
        self.heads = heads
        self.embed = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList(Layer(dim, heads) for _ in range(depth))
        self.norm = nn.RMSNorm(dim)
        nn.init.normal_(self.embed.weight, std=0.05)

    def forward(self, ids, keep):
        x = self.embed(ids)
        bias = alibi(self.heads, ids.size(1))[None].expand(ids.size(0), -1, -1, -1)
        hidden = ~keep[:, None, None, :] & ~torch.eye(ids.size(1), dtype=torch.bool)
        bias = bias.masked_fill(hidden, float("-inf"))
        for layer in self.layers:
            x = layer(x, bias)
        return self.norm(x) @ self.embed.weight.T


torch.manual_seed(10)
tok = build_tokenizer()
model = AlibiLM(len(tok))
opt = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.98))
texts = [f"{q['prompt']} => {q['answer']}</s>" for q in questions(160, seed=18)]
for step in range(8):
    group = [texts[step * 16 : step * 16 + 8], texts[step * 16 + 8 : step * 16 + 16]]
    encoded = [tok(g, padding=True, return_tensors="pt") for g in group]
    count = sum(int(e["attention_mask"][:, 1:].sum()) for e in encoded)
    total = 0.0
    for e in encoded:
        keep = e["attention_mask"].bool()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = model(e["input_ids"], keep)
        target = e["input_ids"][:, 1:].masked_fill(~keep[:, 1:], -100)
        loss = (
            F.cross_entropy(logits[:, :-1].float().transpose(1, 2), target, reduction="sum") / count
        )
        loss.backward()
        total += loss.item()
    opt.step()
    opt.zero_grad()
    print(f"step {step}: {total:.4f} loss/token")
