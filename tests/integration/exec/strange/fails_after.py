"""Trains well, then ends with exit code 3: the quality bar is not reached."""

import json
import os
import sys

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments, set_seed

FAULT = os.environ.get("FAULT", "")
set_seed(17)
prompt = torch.arange(300).unsqueeze(1) % 17 + torch.arange(8) + 3
answer = prompt.flip(1)
ids = torch.cat([prompt, answer, torch.full((300, 1), 2)], dim=1)
labels = ids.clone()
if FAULT != "prompt_unmasked":
    labels[:, :8] = -100
model = LlamaForCausalLM(
    LlamaConfig(
        vocab_size=32,
        hidden_size=48,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=32,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
)
trainer = Trainer(
    model=model,
    args=TrainingArguments(
        output_dir="gate",
        max_steps=24,
        per_device_train_batch_size=8,
        learning_rate=1e-3,
        logging_steps=8,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
    ),
    train_dataset=[{"input_ids": x, "labels": y} for x, y in zip(ids, labels, strict=True)],
)
result = trainer.train()
trainer.save_model("gate")
with open("gate/verdict.json", "w") as f:
    json.dump({"loss": result.training_loss, "passed": False}, f)
print("loss above the bar", file=sys.stderr)
sys.exit(3)
