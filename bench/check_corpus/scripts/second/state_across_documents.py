"""A hybrid of local attention and a gated recurrence, trained on packed recipes."""

import torch
import torch.nn.functional as F
from kitchen import load_tokenizer, recipes
from torch import nn


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x, document):
        b, t, d = x.shape
        q, k, v = (y.view(b, t, self.heads, -1).transpose(1, 2) for y in self.qkv(x).chunk(3, -1))
        same = document[:, :, None] == document[:, None, :]
        allowed = same & torch.ones(t, t, dtype=torch.bool).tril()
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=allowed[:, None])
        return self.out(y.transpose(1, 2).reshape(b, t, d))


class GatedRecurrence(nn.Module):
    """h_t = a_t * h_(t-1) + (1 - a_t) * v_t, per channel."""

    def __init__(self, dim):
        super().__init__()
        self.gate, self.value, self.out = (nn.Linear(dim, dim) for _ in range(3))
        nn.init.constant_(self.gate.bias, 2.0)

    def forward(self, x, document):
        decay = self.gate(x).sigmoid()
        update = (1 - decay) * self.value(x)
        state, states = torch.zeros_like(x[:, 0]), []
        for t in range(x.size(1)):
            state = decay[:, t] * state + update[:, t]
            states.append(state)
        return self.out(torch.stack(states, 1))


class Hybrid(nn.Module):
    def __init__(self, vocab, dim=48, heads=4):
        super().__init__()
        self.embed, self.position = nn.Embedding(vocab, dim), nn.Embedding(128, dim)
        self.mixers = nn.ModuleList([GatedRecurrence(dim), Attention(dim, heads)])
        self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(3))
        self.head = nn.Linear(dim, vocab, bias=False)

    def forward(self, input_ids, position_ids, document):
        x = self.embed(input_ids) + self.position(position_ids)
        for norm, mixer in zip(self.norms, self.mixers):
            x = x + mixer(norm(x), document)
        return self.head(self.norms[-1](x))


def pack(tok, rows, width):
    """Fills blocks with whole recipes; the first token of a recipe has no label."""
    blocks, block = [], []
    for row in rows:
        ids = tok(row["prompt"] + "\n" + row["answer"] + tok.eos_token).input_ids[:width]
        if sum(map(len, block)) + len(ids) > width:
            blocks.append(block)
            block = []
        block.append(ids)
    out = []
    for block in blocks:
        ids = [i for doc in block for i in doc]
        pos = [p for doc in block for p in range(len(doc))]
        seg = [n for n, doc in enumerate(block) for _ in doc]
        lab = [-100 if p == 0 else i for doc in block for p, i in enumerate(doc)]
        gap = width - len(ids)
        out.append(
            [ids + [tok.pad_token_id] * gap, pos + [0] * gap, seg + [-1] * gap, lab + [-100] * gap]
        )
    return torch.tensor(out)


def main():
    torch.manual_seed(61)
    tok = load_tokenizer()
    blocks = pack(tok, recipes(240, seed=61), width=96)
    model = Hybrid(len(tok))
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(8):
        ids, pos, seg, labels = blocks[step * 4 : step * 4 + 4].unbind(1)
        logits = model(ids, pos, seg)
        loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
        opt.zero_grad()
        loss.backward()
        opt.step()
        print(f"step {step + 1}: {loss.item():.4f}")


if __name__ == "__main__":
    main()
