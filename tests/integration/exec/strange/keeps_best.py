"""Trains a GPT-2 with dropout; a callback saves every few steps, keeps two, the best, and `latest`."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
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
OUT = Path("runs/gpt2-tiny")


class SaveCallback(TrainerCallback):
    """Keeps the newest two checkpoints and the one whose logged loss is the lowest."""

    def __init__(self, every=10, keep=2):
        self.every, self.keep = every, keep
        self.best = float("inf")

    def on_step_end(self, args, state, control, model=None, **kwargs):
        if state.global_step % self.every:
            return
        path = OUT / f"step-{state.global_step:05d}"
        tmp = path.with_suffix(".tmp")
        model.save_pretrained(tmp)
        os.replace(tmp, path)
        (OUT / "latest.tmp").write_text(path.name)
        os.replace(OUT / "latest.tmp", OUT / "latest")
        for old in sorted(OUT.glob("step-*"))[: -self.keep]:
            shutil.rmtree(old)

    def on_log(self, args, state, control, logs=None, model=None, **kwargs):
        loss = (logs or {}).get("loss")
        if loss is not None and float(loss) < self.best:
            self.best = float(loss)
            model.save_pretrained(OUT / "best")
            with open(OUT / "best.json", "w") as f:
                json.dump({"step": state.global_step, "loss": self.best}, f)


def main():
    set_seed(1234)
    OUT.mkdir(parents=True, exist_ok=True)
    p = 0.0 if FAULT == "dropout_off" else 0.1
    config = GPT2Config(
        vocab_size=64, n_positions=64, n_embd=48, n_layer=2, n_head=4,
        resid_pdrop=p, embd_pdrop=p, attn_pdrop=p, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    model = GPT2LMHeadModel(config)

    rng = np.random.default_rng(0)
    start = rng.integers(1, 64, size=(320, 1))
    step = rng.integers(1, 4, size=(320, 1))
    seqs = (start + step * np.arange(24)) % 63 + 1
    data = [{"input_ids": torch.tensor(s), "labels": torch.tensor(s)} for s in seqs]

    args = TrainingArguments(
        output_dir=str(OUT),
        max_steps=30,
        per_device_train_batch_size=8,
        learning_rate=1e-3,
        max_grad_norm=0.0 if FAULT == "clip_lost" else 0.25,
        logging_steps=5,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
    )
    trainer = Trainer(model=model, args=args, train_dataset=data, callbacks=[SaveCallback()])
    trainer.train()
    trainer.save_model(str(OUT / "final"))


if __name__ == "__main__":
    main()
