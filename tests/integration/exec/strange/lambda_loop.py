"""A loop of its own: AdamW, gradient accumulation, LambdaLR with warm-up from zero, a Recorder."""

import math
import os

import torch
from torch import nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import LambdaLR

from canary import Recorder

FAULT = os.environ.get("FAULT", "")

batch_size = 8
block_size = 24
accumulation = 4
max_iters = 30
warmup_iters = 6
learning_rate = 3e-3
grad_clip = 1.0
vocab = 40


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = nn.MultiheadAttention(width, heads, batch_first=True)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x, mask):
        h = self.ln_1(x)
        x = x + self.attn(h, h, h, attn_mask=mask, need_weights=False)[0]
        return x + self.mlp(self.ln_2(x))


class LM(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, width), nn.Embedding(block_size, width)
        self.blocks = nn.ModuleList(Block(width, 4) for _ in range(2))
        self.head = nn.Linear(width, vocab, bias=False)

    def forward(self, idx, targets):
        t = idx.shape[1]
        mask = torch.full((t, t), float("-inf")).triu(1)
        x = self.wte(idx) + self.wpe(torch.arange(t))
        for block in self.blocks:
            x = block(x, mask)
        return F.cross_entropy(self.head(x).flatten(0, 1), targets.flatten())


torch.manual_seed(1337)
text = (torch.arange(4000) * 3 + torch.arange(4000) // 50) % vocab


def get_batch():
    ix = torch.randint(len(text) - block_size - 1, (batch_size,))
    x = torch.stack([text[i : i + block_size] for i in ix])
    y = torch.stack([text[i + 1 : i + 1 + block_size] for i in ix])
    return {"input_ids": x, "labels": y}


def factor(it):
    if it < warmup_iters:
        return it / warmup_iters
    return 0.5 * (1 + math.cos(math.pi * (it - warmup_iters) / (max_iters - warmup_iters)))


model = LM()
optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, betas=(0.9, 0.95))
scheduler = LambdaLR(optimizer, factor)

config = {"batch_size": batch_size, "learning_rate": learning_rate}
with Recorder("lambda-loop", model=model, optimizer=optimizer, config=config) as recorder:
    for it in recorder.batches(range(max_iters)):
        for _ in range(accumulation):
            batch = get_batch()
            with recorder.step(batch) as step:
                with step.phase("forward"):
                    loss = model(batch["input_ids"], batch["labels"])
                step.loss(loss)
                with step.phase("backward"):
                    (loss if FAULT == "loss_not_divided" else loss / accumulation).backward()
                if _ == accumulation - 1:
                    step.grad_norm(nn.utils.clip_grad_norm_(model.parameters(), grad_clip))
                    optimizer.step()
                    optimizer.zero_grad(set_to_none=True)
            if FAULT == "scheduler_each_microbatch":
                scheduler.step()
        if FAULT != "scheduler_each_microbatch":
            scheduler.step()
        if it % 5 == 0:
            print(f"iter {it}: loss {loss.item():.4f}, lr {scheduler.get_last_lr()[0]:.2e}")

torch.save(
    {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "iter": max_iters}, "ckpt.pt"
)
