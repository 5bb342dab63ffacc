"""A loop with accelerate and its save_state, and nothing of the canary's."""

import os

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader
from transformers import GPT2Config, GPT2LMHeadModel, get_scheduler

FAULT = os.environ.get("FAULT", "")
ACCUMULATION = 1 if FAULT == "accumulation_lost" else 2

set_seed(0)
accelerator = Accelerator(gradient_accumulation_steps=ACCUMULATION, cpu=True)
model = GPT2LMHeadModel(
    GPT2Config(
        vocab_size=64,
        n_positions=32,
        n_embd=48,
        n_layer=2,
        n_head=4,
        bos_token_id=0,
        eos_token_id=0,
    )
)
ids = (torch.arange(240).unsqueeze(1) * 7 + torch.arange(20)) % 63 + 1
loader = DataLoader(ids, batch_size=4, shuffle=True)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scheduler = get_scheduler("linear", optimizer, num_warmup_steps=0, num_training_steps=30)
model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)

model.train()
for batch in loader:
    with accelerator.accumulate(model):
        loss = model(input_ids=batch, labels=batch).loss
        accelerator.backward(loss)
        if accelerator.sync_gradients and FAULT != "clip_lost":
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
accelerator.print(f"loss {loss.item():.4f}")
accelerator.save_state(os.path.join("acc", "final"))
accelerator.unwrap_model(model).save_pretrained("acc/model", save_function=accelerator.save)
