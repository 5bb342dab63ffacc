"""KTO with trl on feedback of which one part in five is bad; the bad part weighs more."""

from common_pairs import pairs, scratch, small_llama, word_tokenizer
from datasets import Dataset
from transformers import set_seed
from trl import KTOConfig, KTOTrainer


def feedback(n, seed):
    for i, row in enumerate(pairs(n, seed)):
        good = i % 5 != 0
        answer = row["chosen"] if good else row["rejected"]
        yield {
            "prompt": [{"role": "user", "content": row["prompt"]}],
            "completion": [{"role": "assistant", "content": answer}],
            "label": good,
        }


def main():
    set_seed(67)
    tokenizer = word_tokenizer()
    args = KTOConfig(
        output_dir=scratch(),
        beta=0.1,
        desirable_weight=1.0,
        undesirable_weight=4.0,
        per_device_train_batch_size=8,
        num_train_epochs=1,
        learning_rate=1e-3,
        logging_steps=2,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        bf16=False,
    )
    KTOTrainer(
        model=small_llama(67),
        ref_model=small_llama(67),
        args=args,
        train_dataset=Dataset.from_list(list(feedback(120, seed=67))),
        processing_class=tokenizer,
    ).train()


if __name__ == "__main__":
    main()
