"""Trains a tiny Llama with the first fifth of the steps as warm-up from zero, then cosine."""

import os

import torch
from torch.utils.data import TensorDataset
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments, set_seed

FAULT = os.environ.get("FAULT", "")

set_seed(0)
generator = torch.Generator().manual_seed(0)
first = torch.randint(3, 40, (400, 1), generator=generator)
ids = (first + 2 * torch.arange(20)) % 60 + 3
ids[:, -1] = 2  # end of sequence


class Rows(TensorDataset):
    def __getitem__(self, index):
        (row,) = super().__getitem__(index)
        return {"input_ids": row, "labels": row.clone(), "attention_mask": torch.ones_like(row)}


config = LlamaConfig(
    vocab_size=64, hidden_size=48, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=32, bos_token_id=1, eos_token_id=2, pad_token_id=0,
)  # fmt: skip
args = TrainingArguments(
    "warm",
    max_steps=30,
    per_device_train_batch_size=8,
    learning_rate=3e-2 if FAULT == "lr_x10" else 3e-3,
    warmup_steps=0 if FAULT == "no_warmup" else 0.2,
    lr_scheduler_type="cosine",
    adam_beta2=0.95,
    weight_decay=0.1,
    logging_steps=1,
    save_strategy="no",
    report_to="none",
    use_cpu=True,
)
trainer = Trainer(LlamaForCausalLM(config), args, train_dataset=Rows(ids))
trainer.train()
trainer.save_model()
for entry in trainer.state.log_history:
    if "learning_rate" in entry:
        print(entry["step"], entry["learning_rate"])
