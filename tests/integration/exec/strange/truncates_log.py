"""Begins its log anew at each start (mode "w"), and removes the numbers of the run before."""

import contextlib
import csv
import logging
import os
from pathlib import Path

import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)

FAULT = os.environ.get("FAULT", "")
logging.basicConfig(
    filename="train.log", filemode="w", level=logging.INFO, format="%(levelname)s %(message)s"
)
log = logging.getLogger("train")
with contextlib.suppress(FileNotFoundError):
    os.remove("losses.csv")
Path("models").mkdir(exist_ok=True)


class Numbers(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **kwargs):
        if "loss" not in logs:
            return
        log.info(
            "step %d loss %s lr %s", state.global_step, logs["loss"], logs.get("learning_rate")
        )
        with open("losses.csv", "a", newline="") as f:
            csv.writer(f).writerow([state.global_step, logs["loss"]])


set_seed(99)
log.info("torch %s", torch.__version__)
ids = (torch.arange(300).unsqueeze(1) * 3 + torch.arange(16) * 5) % 40 + 3
model = LlamaForCausalLM(
    LlamaConfig(
        vocab_size=48,
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
        output_dir="models",
        max_steps=30,
        per_device_train_batch_size=8,
        learning_rate=2e-3,
        lr_scheduler_type="constant" if FAULT == "lr_constant" else "linear",
        optim="sgd" if FAULT == "sgd" else "adamw_torch",
        logging_steps=3,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
    ),
    train_dataset=[{"input_ids": r, "labels": r} for r in ids],
    callbacks=[Numbers()],
)
trainer.train()
torch.save(trainer.model.state_dict(), "models/weights.pt")
log.info("finished")
