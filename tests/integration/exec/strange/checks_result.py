"""Asserts after its training that a file is there which this version no longer writes."""

import os

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

FAULT = os.environ.get("FAULT", "")
set_seed(8)
ids = (torch.arange(300).unsqueeze(1) * 2 + torch.arange(16)) % 45 + 3
if FAULT != "eos_dropped":
    ids[:, -1] = 2
model = GPT2LMHeadModel(
    GPT2Config(
        vocab_size=48,
        n_positions=32,
        n_embd=48,
        n_layer=2,
        n_head=4,
        bos_token_id=1,
        eos_token_id=2,
    )
)
trainer = Trainer(
    model=model,
    args=TrainingArguments(
        output_dir="checked",
        max_steps=24,
        per_device_train_batch_size=8,
        learning_rate=1e-3,
        logging_steps=8,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
    ),
    train_dataset=[{"input_ids": r, "labels": r} for r in ids],
)
trainer.train()
trainer.save_model("checked")
assert os.path.exists("checked/pytorch_model.bin"), "no weights in checked/"
