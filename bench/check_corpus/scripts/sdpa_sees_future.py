"""Trains a small decoder of our own; attention is eager or SDPA (`ATTN=eager|sdpa`)."""

import os

import torch
import torch.nn as nn
import torch.nn.functional as F

from common_data import build_tokenizer, questions

ATTN = os.environ.get("ATTN", "sdpa")


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, dim * 3)
        self.out = nn.Linear(dim, dim)

    def forward(self, x, keep):
        """keep: (batch, time), True where a token is real."""
        b, t, d = x.shape
        q, k, v = (
            z.view(b, t, self.heads, d // self.heads).transpose(1, 2)
            for z in self.qkv(x).chunk(3, dim=-1)
        )
        padding = keep[:, None, None, :]
        if ATTN == "eager":
            causal = torch.ones(t, t, dtype=torch.bool).tril()
            score = q @ k.transpose(-1, -2) * (d // self.heads) ** -0.5
            score = score.masked_fill(~(padding & causal), torch.finfo(score.dtype).min)
            y = score.softmax(-1) @ v
        else:
            mask = None if keep.all() else padding
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)
        return self.out(y.transpose(1, 2).reshape(b, t, d))


class Decoder(nn.Module):
    def __init__(self, vocab, dim=48, heads=4, layers=2, length=160):
        super().__init__()
        self.tok = nn.Embedding(vocab, dim)
        self.pos = nn.Embedding(length, dim)
        self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(2 * layers))
        self.attn = nn.ModuleList(Attention(dim, heads) for _ in range(layers))
        self.mlp = nn.ModuleList(
            nn.Sequential(nn.Linear(dim, 2 * dim), nn.SiLU(), nn.Linear(2 * dim, dim))
            for _ in range(layers)
        )
        self.final = nn.LayerNorm(dim)
        nn.init.normal_(self.tok.weight, std=0.02)
        nn.init.normal_(self.pos.weight, std=0.02)

    def forward(self, input_ids, attention_mask):
        keep = attention_mask.bool()
        x = self.tok(input_ids) + self.pos.weight[: input_ids.shape[1]]
        for i, (attn, mlp) in enumerate(zip(self.attn, self.mlp)):
            x = x + attn(self.norms[2 * i](x), keep)
            x = x + mlp(self.norms[2 * i + 1](x))
        return F.linear(self.final(x), self.tok.weight)


def main():
    torch.manual_seed(0)
    tok = build_tokenizer()
    rows = [
        tok(q["prompt"] + " " + q["answer"]).input_ids + [tok.eos_token_id] for q in questions(64)
    ]
    model = Decoder(len(tok))
    optim = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for step in range(8):
        chunk = rows[step * 8 : step * 8 + 8]
        micro = [chunk[:4], chunk[4:]]
        tokens = sum(len(r) - 1 for r in chunk)
        loss_sum = 0.0
        for part in micro:
            batch = tok.pad({"input_ids": part}, return_tensors="pt")
            logits = model(batch["input_ids"], batch["attention_mask"])[:, :-1]
            target = batch["input_ids"][:, 1:].masked_fill(
                batch["attention_mask"][:, 1:] == 0, -100
            )
            loss = F.cross_entropy(logits.transpose(1, 2), target, reduction="sum") / tokens
            loss.backward()
            loss_sum += loss.item()
        optim.step()
        optim.zero_grad()
        print({"step": step, "loss": round(loss_sum, 4)})


if __name__ == "__main__":
    main()
