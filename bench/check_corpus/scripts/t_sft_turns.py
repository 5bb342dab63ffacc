"""SFT with trl on conversations that are rendered to text first."""

import torch
from common_data import build_tokenizer, chats
from datasets import Dataset
from transformers import Qwen2Config, Qwen2ForCausalLM, set_seed
from trl import SFTConfig, SFTTrainer


def load_model(tokenizer):
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return Qwen2ForCausalLM(config).to(torch.float32)


def main():
    set_seed(11)
    tokenizer = build_tokenizer()
    dataset = Dataset.from_list([{"messages": m} for m in chats(96, seed=11, max_turns=2)])

    def to_text(row):
        text = tokenizer.apply_chat_template(
            row["messages"], tokenize=False, add_generation_prompt=True
        )
        return {"text": text}

    dataset = dataset.map(to_text, remove_columns=["messages"])
    args = SFTConfig(
        output_dir="/tmp/sft_turns",
        dataset_text_field="text",
        max_length=256,
        per_device_train_batch_size=6,
        num_train_epochs=1,
        learning_rate=2e-3,
        logging_steps=2,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        bf16=False,
    )
    SFTTrainer(
        model=load_model(tokenizer),
        args=args,
        train_dataset=dataset,
        processing_class=tokenizer,
    ).train()


if __name__ == "__main__":
    main()
