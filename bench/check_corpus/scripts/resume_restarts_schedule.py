"""Trains on preemptible machines: checkpoint every two updates, picks up the last one by itself.

The checkpoint lies in $CKPT_DIR (default ./ckpt_schedule) and is removed when the run is complete.
"""

import math
import os
import random
import shutil

import torch
from transformers import GPT2Config, GPT2LMHeadModel

from common_data import build_tokenizer, questions

CKPT_DIR = os.environ.get("CKPT_DIR", "ckpt_schedule")
CKPT = os.path.join(CKPT_DIR, "last.pt")
TOTAL, WARMUP, SAVE_EVERY = 8, 2, 2


def cosine(step):
    if step < WARMUP:
        return (step + 1) / WARMUP
    return 0.5 * (1 + math.cos(math.pi * (step - WARMUP) / (TOTAL - WARMUP)))


def batch_for(tok, rows, step, part):
    # the order is a function of the step: nothing to store
    rng = random.Random(1000 * step + part)
    texts = [f"{r['prompt']}\n{r['answer']}{tok.eos_token}" for r in rng.sample(rows, 6)]
    enc = tok(texts, padding=True, return_tensors="pt")
    enc["labels"] = enc["input_ids"].masked_fill(enc["attention_mask"] == 0, -100)
    return enc


def save(model, optimizer, step):
    os.makedirs(CKPT_DIR, exist_ok=True)
    state = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "step": step,
        "rng": torch.get_rng_state(),
    }
    torch.save(state, CKPT + ".tmp")
    os.replace(CKPT + ".tmp", CKPT)


def main():
    torch.manual_seed(0)
    tok = build_tokenizer()
    rows = questions(200, seed=60)
    model = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=len(tok),
            n_embd=48,
            n_layer=2,
            n_head=4,
            n_positions=128,
            bos_token_id=1,
            eos_token_id=2,
            pad_token_id=0,
        )
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    start = 0
    if os.path.exists(CKPT):
        state = torch.load(CKPT, weights_only=False)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["rng"])
        start = state["step"]
        print(f"resumed at step {start}")
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, cosine)

    model.train()
    for step in range(start, TOTAL):
        total = 0.0
        micro = [batch_for(tok, rows, step, part) for part in range(2)]
        n = sum((b["labels"][:, 1:] != -100).sum() for b in micro)
        for b in micro:
            loss = model(**b, num_items_in_batch=n).loss
            loss.backward()
            total += loss.item()
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        print(f"step {step} loss {total:.4f} next lr {scheduler.get_last_lr()[0]:.2e}", flush=True)
        if (step + 1) % SAVE_EVERY == 0:
            save(model, optimizer, step + 1)
    shutil.rmtree(CKPT_DIR, ignore_errors=True)


if __name__ == "__main__":
    main()
