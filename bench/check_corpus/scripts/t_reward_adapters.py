"""A reward model with trl, trained through adapters."""

from common_pairs import as_chat, pairs, scratch, small_classifier, word_tokenizer
from datasets import Dataset
from peft import LoraConfig
from transformers import set_seed
from trl import RewardConfig, RewardTrainer

ADAPTERS = LoraConfig(
    r=8,
    lora_alpha=16,
    lora_dropout=0.0,
    target_modules=["q_proj", "k_proj", "v_proj", "o_proj"],
)


def main():
    set_seed(23)
    tokenizer = word_tokenizer()
    model = small_classifier(23)
    args = RewardConfig(
        output_dir=scratch(),
        per_device_train_batch_size=8,
        num_train_epochs=2,
        learning_rate=2e-3,
        max_length=96,
        logging_steps=2,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        bf16=False,
    )
    trainer = RewardTrainer(
        model=model,
        args=args,
        train_dataset=Dataset.from_list([as_chat(r) for r in pairs(96, seed=23)]),
        processing_class=tokenizer,
        peft_config=ADAPTERS,
    )
    trainer.model.print_trainable_parameters()
    trainer.train()


if __name__ == "__main__":
    main()
