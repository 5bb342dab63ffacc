"""A decoder on fixed word vectors, trained with accelerate. Blocks are recomputed to save memory."""

import torch
from accelerate import Accelerator
from kitchen import load_tokenizer, recipes
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.out = nn.Linear(dim, dim, bias=False)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (
            y.view(b, t, self.heads, -1).transpose(1, 2)
            for y in self.qkv(self.ln_1(x)).chunk(3, -1)
        )
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, d))
        return x + self.mlp(self.ln_2(x))


class Decoder(nn.Module):
    def __init__(self, vectors, positions=96, depth=2, heads=4):
        super().__init__()
        vocab, dim = vectors.shape
        self.wte = nn.Embedding.from_pretrained(vectors, freeze=True)
        self.register_buffer("wpe", 0.1 * torch.randn(positions, dim))
        self.blocks = nn.ModuleList(Block(dim, heads) for _ in range(depth))
        self.ln_f = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, vocab, bias=False)
        self.recompute = True

    def forward(self, ids):
        x = self.wte(ids) + self.wpe[: ids.size(1)]
        for block in self.blocks:
            if self.recompute and self.training:
                x = checkpoint(block, x, use_reentrant=True)
            else:
                x = block(x)
        return self.head(self.ln_f(x))


def main():
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(12)
    tok = load_tokenizer()
    pad = tok.pad_token_id

    def collate(rows):
        ids = [tok(r["prompt"] + " " + r["answer"] + tok.eos_token).input_ids[:96] for r in rows]
        width = max(map(len, ids))
        return torch.tensor([x + [pad] * (width - len(x)) for x in ids])

    loader = DataLoader(recipes(64, seed=12), batch_size=8, shuffle=True, collate_fn=collate)
    model = Decoder(torch.randn(len(tok), 48))
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=3e-3)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    model.train()
    for step, ids in enumerate(loader):
        logits = model(ids)
        loss = nn.functional.cross_entropy(
            logits[:, :-1].transpose(1, 2), ids[:, 1:], ignore_index=pad
        )
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        accelerator.print(f"{step} {loss.item():.4f}")


if __name__ == "__main__":
    main()
