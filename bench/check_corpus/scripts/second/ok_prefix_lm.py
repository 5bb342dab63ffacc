"""Prefix language model: the question is read in both directions, the answer word by word."""

import torch
import torch.nn.functional as F
from kitchen import load_tokenizer, recipes
from torch import nn


def prefix_mask(prefix, length, width):
    """True where row i may look at column j: within its text, in the prefix or not later."""
    at = torch.arange(width)
    earlier = at[None, :] <= at[:, None]
    in_prefix = at[None, None, :] < prefix[:, None, None]
    inside = at[None, None, :] < length[:, None, None]
    return ((earlier[None] | in_prefix) & inside)[:, None]


class PrefixLM(nn.Module):
    def __init__(self, vocab, dim=48, heads=4, depth=2):
        super().__init__()
        self.heads = heads
        self.embed = nn.Embedding(vocab, dim)
        self.kind = nn.Embedding(2, dim)
        self.positions = nn.Embedding(160, dim)
        self.layers = nn.ModuleList(
            nn.ModuleDict(
                {
                    "norm_a": nn.LayerNorm(dim),
                    "qkv": nn.Linear(dim, 3 * dim),
                    "proj": nn.Linear(dim, dim),
                    "norm_b": nn.LayerNorm(dim),
                    "ff": nn.Sequential(
                        nn.Linear(dim, 3 * dim), nn.GELU(), nn.Linear(3 * dim, dim)
                    ),
                }
            )
            for _ in range(depth)
        )
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, vocab)

    def forward(self, ids, prefix, length):
        at = torch.arange(ids.size(1))
        answer = (at[None] >= prefix[:, None]).long()
        x = self.embed(ids) + self.positions(at) + self.kind(answer)
        mask = prefix_mask(prefix, length, ids.size(1))
        for layer in self.layers:
            q, k, v = (
                y.unflatten(-1, (self.heads, -1)).transpose(1, 2)
                for y in layer["qkv"](layer["norm_a"](x)).chunk(3, -1)
            )
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
            x = x + layer["proj"](y.transpose(1, 2).flatten(2))
            x = x + layer["ff"](layer["norm_b"](x))
        return self.head(self.norm(x))


def main():
    torch.manual_seed(178)
    tok = load_tokenizer()
    model = PrefixLM(len(tok))
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
    rows = recipes(72, seed=178)
    for step in range(8):
        parts = [
            (tok(r["prompt"] + "\n").input_ids, tok(r["answer"] + tok.eos_token).input_ids)
            for r in rows[step * 8 : step * 8 + 8]
        ]
        prefix = torch.tensor([len(p) for p, _ in parts])
        length = torch.tensor([len(p) + len(a) for p, a in parts])
        ids = nn.utils.rnn.pad_sequence(
            [torch.tensor(p + a) for p, a in parts],
            batch_first=True,
            padding_value=tok.pad_token_id,
        )
        at = torch.arange(ids.size(1))[None]
        wanted = (at >= prefix[:, None]) & (at < length[:, None])
        labels = ids.masked_fill(~wanted, -100)
        logits = model(ids, prefix, length)
        loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
        opt.zero_grad()
        loss.backward()
        opt.step()
        print(f"step {step}: {loss.item():.4f}")


if __name__ == "__main__":
    main()
