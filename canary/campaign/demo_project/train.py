"""Teach a small model to count from one number to another, and to stop there."""

import json

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments

from canary.inputs.embedded import data_file, tiny_dir  # no download

tokenizer = AutoTokenizer.from_pretrained(tiny_dir())
model = AutoModelForCausalLM.from_pretrained(tiny_dir())


def encode(row):
    """Return the tokens of a question, and those of its answer with the end token."""
    prompt = tokenizer.apply_chat_template(
        row["prompt"], tokenize=False, add_generation_prompt=True
    )
    answer = row["completion"][0]["content"] + tokenizer.eos_token
    return tokenizer(prompt)["input_ids"], tokenizer(answer)["input_ids"]


def collate(batch):
    """Pad on the right. Only answers have labels."""
    pad = tokenizer.pad_token_id
    tokens = [torch.tensor(prompt + answer) for prompt, answer in batch]
    ids = pad_sequence(tokens, batch_first=True, padding_value=pad)
    mask = pad_sequence([torch.ones_like(row) for row in tokens], batch_first=True)
    labels = ids.clone()
    labels[ids == pad] = -100
    for place, (prompt, _) in enumerate(batch):
        labels[place, : len(prompt)] = -100
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


lines = data_file("prompt_completion").read_text(encoding="utf-8").splitlines()
rows = [encode(json.loads(line)) for line in lines if "Count from" in line]
trainer = Trainer(
    model=model,
    args=TrainingArguments(
        output_dir="out",
        max_steps=30,
        per_device_train_batch_size=4,
        learning_rate=1e-4,
        logging_steps=5,
        report_to="none",
        save_strategy="no",
        seed=7,
    ),
    train_dataset=rows,
    data_collator=collate,
)
trainer.train()
