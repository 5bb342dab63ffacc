"""Removes its output folder at its start, then trains and writes a log of its own there."""

import os
import shutil
import sys

import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)

FAULT = os.environ.get("FAULT", "")
output_dir = "output"

if os.path.exists(output_dir):
    shutil.rmtree(output_dir)
os.makedirs(output_dir)


class Tee:
    """Standard output, and the same into a file."""

    def __init__(self, path):
        self.file, self.stream = open(path, "w"), sys.stdout

    def write(self, text):
        self.file.write(text)
        self.stream.write(text)

    def flush(self):
        self.file.flush()
        self.stream.flush()


sys.stdout = Tee(os.path.join(output_dir, "train.log"))


class PrintLoss(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **kwargs):
        if "loss" in logs:
            print(f"step {state.global_step} loss {float(logs['loss']):.6f}")


set_seed(0)
p = 0.1 if FAULT == "dropout_on" else 0.0
model = GPT2LMHeadModel(
    GPT2Config(vocab_size=50, n_positions=32, n_embd=48, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=0,
               resid_pdrop=p, embd_pdrop=p, attn_pdrop=p)
)  # fmt: skip
ids = (torch.arange(300).unsqueeze(1) + torch.arange(18) ** 2) % 49 + 1
trainer = Trainer(
    model=model,
    args=TrainingArguments(
        output_dir=output_dir,
        max_steps=25,
        per_device_train_batch_size=8,
        learning_rate=5e-3 if FAULT == "lr_x10" else 5e-4,
        logging_steps=1,
        save_steps=25,
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
    ),
    train_dataset=[{"input_ids": r, "labels": r} for r in ids],
    callbacks=[PrintLoss()],
)
trainer.train()
print("done")
sys.stdout.flush()
