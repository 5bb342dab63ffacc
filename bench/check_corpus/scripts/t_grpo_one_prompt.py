"""GRPO with trl on one prompt, which fills the whole dataset."""

from common_pairs import questions, scratch, small_llama, word_tokenizer
from datasets import Dataset
from transformers import set_seed
from trl import GRPOConfig, GRPOTrainer


def names_wanted(completions, nouns, **_):
    """The share of wanted nouns, less a little for each word."""
    out = []
    for completion, wanted in zip(completions, nouns):
        words = completion[0]["content"].split()
        out.append(sum(n in words for n in wanted) / len(wanted) - 0.01 * len(words))
    return out


def main():
    set_seed(61)
    tokenizer = word_tokenizer("left")
    folder = scratch()
    small_llama(61).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    text, nouns = questions(1, seed=61)[0]
    row = {"prompt": [{"role": "user", "content": text}], "nouns": nouns}
    args = GRPOConfig(
        output_dir=scratch(),
        per_device_train_batch_size=16,
        num_generations=16,
        max_completion_length=12,
        temperature=1.0,
        beta=0.0,
        learning_rate=1e-3,
        max_steps=16,
        logging_steps=2,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        bf16=False,
    )
    GRPOTrainer(
        model=folder,
        reward_funcs=names_wanted,
        args=args,
        train_dataset=Dataset.from_list([row] * 64),
        processing_class=tokenizer,
    ).train()


if __name__ == "__main__":
    main()
