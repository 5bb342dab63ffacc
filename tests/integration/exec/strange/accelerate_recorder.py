"""The loop of accelerate with a Recorder around its steps; saves its state twice."""

import os

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader
from transformers import GPT2Config, GPT2LMHeadModel, get_scheduler

from canary import Recorder

FAULT = os.environ.get("FAULT", "")
ACCUMULATION = 1 if FAULT == "accumulation_lost" else 2
MAX_STEPS = 30

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
scheduler = get_scheduler("linear", optimizer, num_warmup_steps=0, num_training_steps=MAX_STEPS)
model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)

model.train()
done = 0
with Recorder(
    "accelerate", model=model, optimizer=optimizer, config={"accumulation": ACCUMULATION}
) as recorder:
    for batch in recorder.batches(loader):
        with (
            recorder.step({"input_ids": batch, "labels": batch}) as step,
            accelerator.accumulate(model),
        ):
            loss = model(input_ids=batch, labels=batch).loss
            step.loss(loss)
            accelerator.backward(loss)
            if accelerator.sync_gradients and FAULT != "clip_lost":
                step.grad_norm(accelerator.clip_grad_norm_(model.parameters(), 0.5))
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        if accelerator.sync_gradients:
            done += 1
            if done % 15 == 0:
                accelerator.save_state(os.path.join("state", f"step_{done}"))
accelerator.print(f"{done} updates, loss {loss.item():.4f}")
accelerator.unwrap_model(model).save_pretrained("state/model", save_function=accelerator.save)
