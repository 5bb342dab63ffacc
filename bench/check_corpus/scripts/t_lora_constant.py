"""SFT with trl through adapters on all linear layers; the rate is high and never changes."""

import tempfile

from common_data import build_tokenizer, questions
from datasets import Dataset
from peft import LoraConfig
from t_sft_turns import load_model
from transformers import set_seed
from trl import SFTConfig, SFTTrainer


def main():
    set_seed(47)
    tokenizer = build_tokenizer()
    rows = [
        {"prompt": q["prompt"] + "\n", "completion": q["answer"]} for q in questions(128, seed=47)
    ]
    args = SFTConfig(
        output_dir=tempfile.mkdtemp(),
        per_device_train_batch_size=8,
        num_train_epochs=1,
        learning_rate=1e-2,
        lr_scheduler_type="constant",
        warmup_steps=0,
        weight_decay=0.0,
        max_length=128,
        logging_steps=2,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        bf16=False,
    )
    SFTTrainer(
        model=load_model(tokenizer),
        args=args,
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
        peft_config=LoraConfig(
            task_type="CAUSAL_LM", r=8, lora_alpha=32, target_modules="all-linear"
        ),
    ).train()


if __name__ == "__main__":
    main()
