"""Supervised fine-tuning with transformers' Trainer: `sft_trainer.py MODEL ROWS.jsonl`."""

import sys

from datasets import load_dataset
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    PrinterCallback,
    Trainer,
    TrainingArguments,
    set_seed,
)

set_seed(42)
model_name, rows = sys.argv[1:]
tokenizer = AutoTokenizer.from_pretrained(model_name)
model = AutoModelForCausalLM.from_pretrained(model_name)


def encode(row):
    text = tokenizer.apply_chat_template(row["prompt"] + row["completion"], tokenize=False)
    start = tokenizer.apply_chat_template(row["prompt"], tokenize=False, add_generation_prompt=True)
    ids = tokenizer(text, add_special_tokens=False)["input_ids"][:128]
    prompt = len(tokenizer(start, add_special_tokens=False)["input_ids"])
    return {"input_ids": ids, "labels": [-100] * prompt + ids[prompt:]}


data = load_dataset("json", data_files=rows, split="train[:600]", cache_dir="cache")
data = data.map(encode, remove_columns=data.column_names)
arguments = TrainingArguments(
    output_dir="checkpoints",
    max_steps=150,
    per_device_train_batch_size=4,
    learning_rate=5e-4,
    lr_scheduler_type="cosine",
    warmup_steps=10,
    logging_steps=10,
    save_strategy="no",
    report_to="none",
    disable_tqdm=True,
    use_cpu=True,
    seed=42,
)
collator = DataCollatorForSeq2Seq(tokenizer, model)
trainer = Trainer(model, arguments, collator, data)
trainer.remove_callback(PrinterCallback)  # it prints times
trainer.train()
print([entry["loss"] for entry in trainer.state.log_history if "loss" in entry])
model.save_pretrained("out")
