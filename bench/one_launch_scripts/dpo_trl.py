"""Preference training with trl: `dpo_trl.py MODEL ROWS.jsonl`."""

import sys

from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, PrinterCallback
from trl import DPOConfig, DPOTrainer

model_name, rows = sys.argv[1:]
data = load_dataset("json", data_files=rows, split="train[:400]", cache_dir="cache")
arguments = DPOConfig(
    output_dir="checkpoints",
    max_steps=120,
    per_device_train_batch_size=2,
    learning_rate=1e-4,
    beta=0.1,
    max_length=96,
    logging_steps=10,
    save_strategy="no",
    report_to="none",
    disable_tqdm=True,
    use_cpu=True,
    bf16=False,
    gradient_checkpointing=False,
    seed=7,
)
trainer = DPOTrainer(
    model=AutoModelForCausalLM.from_pretrained(model_name),
    args=arguments,
    train_dataset=data,
    processing_class=AutoTokenizer.from_pretrained(model_name),
)
trainer.remove_callback(PrinterCallback)  # it prints times
trainer.train()
print([entry["loss"] for entry in trainer.state.log_history if "loss" in entry])
trainer.model.save_pretrained("out")
