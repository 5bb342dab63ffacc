"""RLOO with trl. Answers are checked by a small search with a budget, as code graders do."""

import itertools
import time

from common_pairs import questions, scratch, small_llama, word_tokenizer
from datasets import Dataset
from transformers import set_seed
from trl import RLOOConfig, RLOOTrainer

BUDGET_S = 0.004


def graded(prompts, completions, nouns, **kwargs):
    """Share of the wanted words that the grader finds before its time is up."""
    deadline = time.perf_counter() + BUDGET_S
    rewards = []
    for completion, wanted in zip(completions, nouns, strict=True):
        words = (
            completion[0]["content"].split() if isinstance(completion, list) else completion.split()
        )
        best = 0.0
        for size in (1, 2, 3):
            for subset in itertools.combinations(words, size):
                if time.perf_counter() > deadline:
                    break
                found = sum(noun in subset for noun in wanted) / len(wanted)
                best = max(best, found + 0.1 * (size == 3))
        rewards.append(best)
    return rewards


if __name__ == "__main__":
    set_seed(91)
    tok = word_tokenizer("left")
    folder = scratch()
    small_llama(91).save_pretrained(folder)
    tok.save_pretrained(folder)
    train = Dataset.from_list(
        [
            {"prompt": f"<user> {text} <bot>", "nouns": nouns}
            for text, nouns in questions(32, seed=91)
        ]
    )
    trainer = RLOOTrainer(
        model=folder,
        reward_funcs=[graded],
        args=RLOOConfig(
            output_dir=scratch(),
            per_device_train_batch_size=8,
            num_generations=4,
            max_completion_length=16,
            learning_rate=3e-4,
            max_steps=6,
            beta=0.05,
            logging_steps=1,
            save_strategy="no",
            report_to="none",
            use_cpu=True,
            bf16=False,
        ),
        train_dataset=train,
        processing_class=tok,
    )
    trainer.train()
    for entry in trainer.state.log_history[:-1]:
        print(entry["step"], entry["loss"], entry["reward"])
