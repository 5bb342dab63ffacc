"""One block used three times, tied embeddings, stochastic depth, and a head two tokens ahead."""

import torch
import torch.nn.functional as F
from kitchen import load_tokenizer, recipes
from torch import nn


class SharedLM(nn.Module):
    def __init__(self, vocab, pad, dim=48, heads=4, rounds=3, survive=0.8):
        super().__init__()
        self.pad, self.heads, self.rounds, self.survive = pad, heads, rounds, survive
        self.embed, self.positions = nn.Embedding(vocab, dim), nn.Embedding(160, dim)
        nn.init.normal_(self.embed.weight, std=0.1)
        self.norm_1, self.norm_2, self.norm_3 = (nn.RMSNorm(dim) for _ in range(3))
        self.qkv, self.out = nn.Linear(dim, 3 * dim, bias=False), nn.Linear(dim, dim, bias=False)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)
        self.ahead = nn.Linear(dim, dim)

    def block(self, x):
        b, t, d = x.shape
        q, k, v = (
            y.view(b, t, self.heads, -1).transpose(1, 2)
            for y in self.qkv(self.norm_1(x)).chunk(3, -1)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        y = self.out(y.transpose(1, 2).reshape(b, t, d))
        return y + self.down(F.silu(self.up(self.norm_2(x + y))))

    def forward(self, ids):
        x = self.embed(ids) + self.positions(torch.arange(ids.size(1)))
        for i in range(self.rounds):
            if self.training and i > 0:
                if torch.rand(()) < self.survive:
                    x = x + self.block(x) / self.survive
            else:
                x = x + self.block(x)
        x = self.norm_3(x)
        return x @ self.embed.weight.T, (x + self.ahead(x)) @ self.embed.weight.T

    def loss(self, ids, next_weight=0.3):
        one, two = self(ids)
        first = F.cross_entropy(
            one[:, :-1].transpose(1, 2), ids[:, 1:], ignore_index=self.pad, reduction="sum"
        )
        second = F.cross_entropy(
            two[:, :-2].transpose(1, 2), ids[:, 2:], ignore_index=self.pad, reduction="sum"
        )
        return first + next_weight * second


def groups(model, lr):
    matrices = [p for p in model.parameters() if p.ndim > 1]
    rest = [p for p in model.parameters() if p.ndim <= 1]
    return [
        {"params": matrices, "lr": lr, "weight_decay": 0.1},
        {"params": rest, "lr": 3 * lr, "weight_decay": 0.0},
    ]


def main():
    torch.manual_seed(167)
    tok = load_tokenizer()
    model = SharedLM(len(tok), tok.pad_token_id)
    opt = torch.optim.AdamW(groups(model, 2e-3), betas=(0.9, 0.95))
    rows = recipes(80, seed=167)
    for step in range(8):
        texts = [
            f"{r['prompt']}\n{r['answer']}{tok.eos_token}" for r in rows[step * 9 : step * 9 + 9]
        ]
        ids = tok(texts, padding=True, return_tensors="pt").input_ids
        tokens = (ids[:, 1:] != tok.pad_token_id).sum()
        loss = model.loss(ids) / tokens
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        print(step, round(loss.item(), 4))


if __name__ == "__main__":
    main()
