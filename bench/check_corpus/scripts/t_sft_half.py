"""SFT with trl of a checkpoint that is loaded in bfloat16 to save memory."""

import tempfile

import torch
from common_data import build_tokenizer, questions
from datasets import Dataset
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, set_seed
from trl import SFTConfig, SFTTrainer


def checkpoint(tokenizer):
    """Stand-in for the base model of the team."""
    torch.manual_seed(31)
    folder = tempfile.mkdtemp()
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=96,
            intermediate_size=192,
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=4,
            max_position_embeddings=256,
            initializer_range=0.05,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    )
    model.save_pretrained(folder)
    return folder


def main():
    set_seed(31)
    tokenizer = build_tokenizer()
    model = AutoModelForCausalLM.from_pretrained(checkpoint(tokenizer), dtype=torch.bfloat16)
    rows = [
        {"prompt": q["prompt"] + "\n", "completion": q["answer"]} for q in questions(128, seed=31)
    ]
    args = SFTConfig(
        output_dir=tempfile.mkdtemp(),
        per_device_train_batch_size=8,
        num_train_epochs=1,
        learning_rate=1e-5,
        lr_scheduler_type="cosine",
        warmup_steps=2,
        weight_decay=0.01,
        max_length=128,
        gradient_checkpointing=False,
        logging_steps=2,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        bf16=False,
    )
    SFTTrainer(
        model=model,
        args=args,
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
    ).train()


if __name__ == "__main__":
    main()
