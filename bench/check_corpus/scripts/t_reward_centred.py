"""A reward model with trl whose scores are drawn towards a mean of zero."""

from common_pairs import as_chat, pairs, scratch, small_classifier, word_tokenizer
from datasets import Dataset
from transformers import set_seed
from trl import RewardConfig, RewardTrainer


def main():
    set_seed(63)
    tokenizer = word_tokenizer()
    args = RewardConfig(
        output_dir=scratch(),
        per_device_train_batch_size=8,
        num_train_epochs=2,
        learning_rate=5e-4,
        center_rewards_coefficient=0.01,
        max_length=96,
        logging_steps=2,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        bf16=False,
    )
    RewardTrainer(
        model=small_classifier(63),
        args=args,
        train_dataset=Dataset.from_list([as_chat(r) for r in pairs(96, seed=63)]),
        processing_class=tokenizer,
    ).train()


if __name__ == "__main__":
    main()
