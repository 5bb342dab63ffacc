"""trl SFT with NEFTune noise, dropout and packing (best-fit, documents stay apart in SDPA)."""

import os
import tempfile

from datasets import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, set_seed
from trl import SFTConfig, SFTTrainer

from common_data import build_tokenizer, questions


def dataset():
    rows = questions(200, seed=71)
    return Dataset.from_dict(
        {
            "prompt": [r["prompt"] + "\n" for r in rows],
            "completion": [r["answer"] for r in rows],
        }
    )


def build_model(tok):
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tok),
            hidden_size=48,
            intermediate_size=96,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=4,
            max_position_embeddings=256,
            attention_dropout=0.1,
            bos_token_id=1,
            eos_token_id=2,
            pad_token_id=0,
            attn_implementation="sdpa",
        )
    )


if __name__ == "__main__":
    set_seed(4)
    os.environ.setdefault("WANDB_DISABLED", "true")
    tokenizer = build_tokenizer()
    trainer = SFTTrainer(
        model=build_model(tokenizer),
        args=SFTConfig(
            output_dir=tempfile.mkdtemp(),
            neftune_noise_alpha=5.0,
            packing=True,
            packing_strategy="bfd",
            max_length=128,
            completion_only_loss=True,
            label_smoothing_factor=0.0,
            max_steps=6,
            per_device_train_batch_size=2,
            gradient_accumulation_steps=2,
            learning_rate=2e-3,
            lr_scheduler_type="constant_with_warmup",
            warmup_steps=1,
            logging_steps=1,
            bf16=False,
            gradient_checkpointing=False,
            save_strategy="no",
            report_to="none",
            use_cpu=True,
        ),
        train_dataset=dataset(),
        processing_class=tokenizer,
    )
    trainer.train()
