"""accelerate loop with save_state/load_state. Starts again from $STATE_DIR if a state lies there."""

import json
import os
import shutil
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader
from transformers import LlamaConfig, LlamaForCausalLM, get_constant_schedule_with_warmup

from common_data import build_tokenizer, questions

STATE = Path(os.environ.get("STATE_DIR", "state_accelerate"))
MAX_STEPS = 8


def build(tok):
    def collate(rows):
        enc = tok(
            [r["prompt"] + " = " + r["answer"] + tok.eos_token for r in rows],
            padding=True,
            return_tensors="pt",
        )
        enc["labels"] = enc["input_ids"].masked_fill(enc["attention_mask"] == 0, -100)
        return dict(enc)

    loader = DataLoader(questions(128, seed=70), batch_size=8, shuffle=True, collate_fn=collate)
    config = LlamaConfig(
        vocab_size=len(tok),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=128,
    )
    return LlamaForCausalLM(config), loader


def main():
    set_seed(21)
    accelerator = Accelerator(cpu=True)
    tok = build_tokenizer()
    model, loader = build(tok)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    scheduler = get_constant_schedule_with_warmup(optimizer, 2)
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)

    step, epoch = 0, 0
    if (STATE / "progress.json").exists():
        accelerator.load_state(str(STATE))
        progress = json.loads((STATE / "progress.json").read_text())
        step, epoch = progress["step"], progress["epoch"]
        accelerator.print(f"continue from step {step}, epoch {epoch}")

    while step < MAX_STEPS:
        for batch in loader:
            loss = model(**batch).loss
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            step += 1
            accelerator.print(f"epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)
            if step % 3 == 0:
                accelerator.save_state(str(STATE))
                (STATE / "progress.json").write_text(json.dumps({"step": step, "epoch": epoch}))
            if step == MAX_STEPS:
                break
        epoch += 1
    shutil.rmtree(STATE, ignore_errors=True)


if __name__ == "__main__":
    main()
