"""Dr. GRPO with trl: no scaling by the standard deviation, no KL, each rollout is used twice."""

from common_pairs import questions, scratch, small_llama, word_tokenizer
from datasets import Dataset
from transformers import set_seed
from trl import GRPOConfig, GRPOTrainer


def mentions(completions, nouns, **kwargs):
    out = []
    for completion, wanted in zip(completions, nouns, strict=True):
        words = completion[0]["content"].split()
        out.append(float(len(set(words) & set(wanted))))
    return out


def short(completion_ids, **kwargs):
    return [-len(ids) / 16 for ids in completion_ids]


def main():
    set_seed(111)
    tokenizer = word_tokenizer("left")
    dataset = Dataset.from_list(
        [
            {"prompt": [{"role": "user", "content": text}], "nouns": nouns}
            for text, nouns in questions(40, seed=111)
        ]
    )
    args = GRPOConfig(
        output_dir=scratch(),
        loss_type="dr_grpo",
        scale_rewards="none",
        beta=0.0,
        num_iterations=2,
        epsilon=0.2,
        epsilon_high=0.28,
        temperature=0.8,
        num_generations=4,
        per_device_train_batch_size=8,
        max_completion_length=16,
        reward_weights=[1.0, 0.5],
        learning_rate=1e-3,
        max_steps=8,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        bf16=False,
    )
    trainer = GRPOTrainer(
        model=small_llama(111),
        reward_funcs=[mentions, short],
        args=args,
        train_dataset=dataset,
        processing_class=tokenizer,
    )
    trainer.train()
    print([round(h["reward"], 3) for h in trainer.state.log_history if "reward" in h])


if __name__ == "__main__":
    main()
