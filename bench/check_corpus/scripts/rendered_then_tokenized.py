"""SFTTrainer on a text column: chats are rendered first, the trainer tokenizes."""

import argparse
import tempfile

from datasets import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, set_seed
from trl import SFTConfig, SFTTrainer

from common_data import build_tokenizer, chats


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--max_steps", type=int, default=6)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--batch_size", type=int, default=4)
    parser.add_argument("--grad_accum", type=int, default=2)
    parser.add_argument("--seed", type=int, default=17)
    return parser.parse_args()


def main():
    args = parse_args()
    set_seed(args.seed)
    tokenizer = build_tokenizer(add_bos=True)

    def formatting(example):
        text = tokenizer.apply_chat_template(example["messages"], tokenize=False)
        return {"text": text.removesuffix("\n").removesuffix(tokenizer.eos_token)}

    dataset = Dataset.from_list([{"messages": m} for m in chats(64, seed=args.seed)])
    dataset = dataset.map(formatting, remove_columns=["messages"])
    print(dataset[0]["text"])

    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=32,
            intermediate_size=96,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=4,
            max_position_embeddings=512,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    )
    trainer = SFTTrainer(
        model=model,
        args=SFTConfig(
            output_dir=tempfile.mkdtemp(),
            dataset_text_field="text",
            max_length=400,
            max_steps=args.max_steps,
            per_device_train_batch_size=args.batch_size,
            gradient_accumulation_steps=args.grad_accum,
            learning_rate=args.lr,
            lr_scheduler_type="cosine",
            logging_steps=1,
            bf16=False,
            gradient_checkpointing=False,
            save_strategy="no",
            report_to="none",
            use_cpu=True,
            seed=args.seed,
        ),
        train_dataset=dataset,
        processing_class=tokenizer,
    )
    trainer.train()


if __name__ == "__main__":
    main()
