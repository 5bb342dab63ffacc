"""Evaluates every few steps while it trains, and loads the best checkpoint at the end."""

import os
import time

import numpy as np
import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    EarlyStoppingCallback,
    Trainer,
    TrainingArguments,
    set_seed,
)

FAULT = os.environ.get("FAULT", "")
set_seed(2024)


def build(n, seed):
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(n):
        ids = rng.integers(3, 23, size=12)
        rows.append({"input_ids": ids.tolist(), "labels": int(ids[0] > ids[-1])})
    return rows


train, valid = build(480, 0), build(96, 1)
if FAULT == "trains_on_eval":
    train = valid * 5


def collate(rows):
    if FAULT == "slow_collator":
        time.sleep(0.05)
    return {k: torch.tensor([r[k] for r in rows]) for k in rows[0]}


def compute_metrics(p):
    return {"accuracy": float((p.predictions.argmax(-1) == p.label_ids).mean())}


model = BertForSequenceClassification(
    BertConfig(
        vocab_size=24,
        hidden_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=96,
        max_position_embeddings=16,
    )
)
trainer = Trainer(
    model=model,
    args=TrainingArguments(
        output_dir="eval-out",
        max_steps=40,
        per_device_train_batch_size=16,
        per_device_eval_batch_size=32,
        learning_rate=1e-3,
        eval_strategy="steps",
        eval_steps=10,
        save_strategy="steps",
        save_steps=10,
        save_total_limit=2,
        load_best_model_at_end=True,
        metric_for_best_model="accuracy",
        logging_steps=10,
        report_to="none",
        use_cpu=True,
    ),
    train_dataset=train,
    eval_dataset=valid,
    data_collator=collate,
    compute_metrics=compute_metrics,
    callbacks=[EarlyStoppingCallback(early_stopping_patience=10)],
)
trainer.train()
print(trainer.evaluate())
trainer.save_model("eval-out/best")
