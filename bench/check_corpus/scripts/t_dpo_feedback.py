"""DPO with trl on an export of rated conversations."""

from common_pairs import pairs, scratch, small_llama, word_tokenizer
from datasets import Dataset
from transformers import set_seed
from trl import DPOConfig, DPOTrainer


def rated(n, seed):
    """Return rows as the annotation tool exports them: two whole conversations per task."""
    for row in pairs(n, seed):
        user = {"role": "user", "content": row["prompt"]}
        yield {
            "task": row["prompt"],
            "better": [user, {"role": "assistant", "content": row["chosen"]}],
            "worse": [user, {"role": "assistant", "content": row["rejected"]}],
        }


def to_preference(row):
    return {
        "prompt": [{"role": "user", "content": row["task"]}],
        "chosen": row["better"],
        "rejected": row["worse"],
    }


def main():
    set_seed(17)
    tokenizer = word_tokenizer()
    dataset = Dataset.from_list(list(rated(64, seed=17)))
    dataset = dataset.map(to_preference, remove_columns=["task", "better", "worse"])
    args = DPOConfig(
        output_dir=scratch(),
        beta=0.1,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=1,
        num_train_epochs=1,
        learning_rate=1e-3,
        logging_steps=2,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        bf16=False,
    )
    DPOTrainer(
        model=small_llama(17),
        ref_model=small_llama(17),
        args=args,
        train_dataset=dataset,
        processing_class=tokenizer,
    ).train()


if __name__ == "__main__":
    main()
