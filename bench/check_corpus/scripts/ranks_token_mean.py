"""Instruction tuning with the Hugging Face Trainer. Starts on one or more ranks with torchrun."""

import os
import tempfile

import torch
from transformers import (
    DataCollatorForSeq2Seq,
    MistralConfig,
    MistralForCausalLM,
    Trainer,
    TrainingArguments,
    set_seed,
)

from common_data import build_tokenizer, questions


def main():
    set_seed(3)
    tok = build_tokenizer()

    def features(row):
        source = tok("Q: " + row["prompt"] + "\nA: ")["input_ids"]
        target = tok(row["answer"])["input_ids"] + [tok.eos_token_id]
        return dict(
            input_ids=source + target,
            attention_mask=[1] * (len(source) + len(target)),
            labels=[-100] * len(source) + target,
        )

    train = [features(r) for r in questions(128, seed=11)]
    config = MistralConfig(
        vocab_size=len(tok),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        sliding_window=None,
        max_position_embeddings=128,
        pad_token_id=tok.pad_token_id,
        bos_token_id=tok.bos_token_id,
        eos_token_id=tok.eos_token_id,
    )
    out = os.environ.get("OUTPUT_DIR") or tempfile.mkdtemp()
    args = TrainingArguments(
        output_dir=out,
        max_steps=6,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=2,
        learning_rate=1e-3,
        lr_scheduler_type="constant",
        average_tokens_across_devices=False,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        use_cpu=not torch.cuda.is_available(),
        seed=3,
        disable_tqdm=True,
        ddp_find_unused_parameters=False,
    )
    trainer = Trainer(
        model=MistralForCausalLM(config),
        args=args,
        train_dataset=train,
        data_collator=DataCollatorForSeq2Seq(tok, padding=True),
    )
    trainer.train()


if __name__ == "__main__":
    main()
