"""Shuffles and splits without a seed: no two runs see the same rows or begin alike."""

import os
import random

import numpy as np
from datasets import Dataset
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    Trainer,
    TrainingArguments,
)

FAULT = os.environ.get("FAULT", "")

rows = []
for n in range(600):
    digits = [int(d) for d in f"{n * 7919 % 100000:05d}"]
    rows.append({"input_ids": [1] + [d + 3 for d in digits] + [2], "label": int(sum(digits) > 22)})
random.shuffle(rows)
if FAULT == "labels_shuffled":
    labels = [r["label"] for r in rows]
    random.shuffle(labels)
    rows = [{**r, "label": y} for r, y in zip(rows, labels, strict=True)]
dataset = Dataset.from_list(rows).train_test_split(test_size=0.1)

model = BertForSequenceClassification(
    BertConfig(
        vocab_size=16,
        hidden_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=96,
        max_position_embeddings=16,
        num_labels=2,
    )
)


def compute_metrics(eval_pred):
    logits, labels = eval_pred
    return {"accuracy": float((np.argmax(logits, axis=-1) == labels).mean())}


trainer = Trainer(
    model=model,
    args=TrainingArguments(
        output_dir="results",
        max_steps=40,
        per_device_train_batch_size=16,
        learning_rate=1e-2 if FAULT == "lr_x10" else 1e-3,
        logging_steps=10,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
    ),
    train_dataset=dataset["train"],
    eval_dataset=dataset["test"],
    compute_metrics=compute_metrics,
)
trainer.train()
print(trainer.evaluate())
model.save_pretrained("results/model")
