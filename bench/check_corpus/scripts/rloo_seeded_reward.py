"""RLOO with a noisy judge. The noise depends on the text only: a repeat gives the same score."""

import functools
import hashlib
import random

from common_pairs import questions, scratch, small_llama, word_tokenizer
from datasets import Dataset
from transformers import set_seed
from trl import RLOOConfig, RLOOTrainer


class Judge:
    """A stand-in for a served model: scores are cached, calls are counted."""

    __name__ = "judge"

    def __init__(self, noise=0.3):
        self.noise, self.calls, self.history = noise, 0, []

    @functools.lru_cache(maxsize=4096)  # noqa: B019
    def score(self, prompt, answer):
        seed = hashlib.sha256(f"{prompt}|{answer}".encode()).hexdigest()
        words = answer.split()
        quality = len(set(words)) / (len(words) or 1)
        return quality + random.Random(seed).gauss(0, self.noise)

    def __call__(self, prompts, completions, **kwargs):
        self.calls += 1
        scores = [self.score(p, c) for p, c in zip(prompts, completions, strict=True)]
        self.history.append(sum(scores) / len(scores))
        return scores


set_seed(131)
tok = word_tokenizer("left")
model_dir = scratch()
small_llama(131).save_pretrained(model_dir)
tok.save_pretrained(model_dir)
judge = Judge()
args = RLOOConfig(
    output_dir=scratch(),
    per_device_train_batch_size=8,
    num_generations=2,
    steps_per_generation=1,
    max_completion_length=14,
    learning_rate=5e-4,
    beta=0.05,
    reward_clip_range=(-2.0, 2.0),
    normalize_advantages=True,
    max_steps=6,
    logging_steps=2,
    save_strategy="no",
    report_to="none",
    use_cpu=True,
    bf16=False,
)
trainer = RLOOTrainer(
    model=model_dir,
    reward_funcs=judge,
    args=args,
    train_dataset=Dataset.from_list(
        [{"prompt": "<user> " + q + " <bot>"} for q, _ in questions(32, seed=131)]
    ),
    processing_class=tok,
)
trainer.train()
print(judge.calls, "calls,", [round(x, 3) for x in judge.history])
