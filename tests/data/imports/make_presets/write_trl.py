"""trl: a GRPO training of ten steps, and an SFT training of twelve."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Any

import tiny
import trained
from common import fresh, write_expected
from trl import GRPOConfig, GRPOTrainer, SFTConfig, SFTTrainer

COMMON = {
    "logging_steps": 1,
    "save_strategy": "no",
    "report_to": ["tensorboard"],
    "use_cpu": True,
    "bf16": False,
    "gradient_checkpointing": False,
    "learning_rate": 1e-3,
}


def reward(completions: list[str], **kwargs: object) -> list[float]:
    """More numbers, more reward."""
    return [sum(word in tiny.WORDS[:10] for word in text.split()) / 8 for text in completions]


def grpo(folder: Path) -> Any:
    trainer = GRPOTrainer(
        model=tiny.saved(),
        reward_funcs=reward,
        args=GRPOConfig(
            output_dir=str(folder),
            max_steps=10,
            per_device_train_batch_size=4,
            num_generations=4,
            max_completion_length=8,
            beta=0.04,
            **COMMON,
        ),
        train_dataset=tiny.sums(40, "prompt"),
        processing_class=tiny.tokenizer(),
    )
    trainer.train()
    return trainer


def sft(folder: Path) -> Any:
    trainer = SFTTrainer(
        model=tiny.saved(),
        args=SFTConfig(
            output_dir=str(folder),
            max_steps=12,
            per_device_train_batch_size=4,
            eval_strategy="steps",
            eval_steps=6,
            **COMMON,
        ),
        train_dataset=tiny.sums(48),
        eval_dataset=tiny.sums(8),
        processing_class=tiny.tokenizer(),
    )
    trainer.train()
    return trainer


NAMES = {"loss": "loss", "grad_norm": "grad_norm", "learning_rate": "learning_rate"}
GRPO_NAMES = NAMES | {
    "step_time_s": "step_time",
    "tokens_seen": "num_tokens",
    "reward": "reward",
    "kl": "kl",
    "entropy": "entropy",
    "completion_length": "completions/mean_length",
    "clip_fraction": "clip_ratio/region_mean",
    "truncated_fraction": "completions/clipped_ratio",
}
SFT_NAMES = NAMES | {
    "tokens_seen": "num_tokens",
    "entropy": "entropy",
    "token_accuracy": "mean_token_accuracy",
}


def main() -> None:
    own = (
        f"the framework's own writer trl {version('trl')} on transformers {version('transformers')}"
    )
    made = []
    for kind, train, names in (("grpo", grpo, GRPO_NAMES), ("sft", sft, SFT_NAMES)):
        history = trained.run(fresh("trl", kind), train).state.log_history
        there = {ours: name for ours, name in names.items() if trained.values(history, name)}
        for output in trained.outputs(history, there, own):
            output.path = f"{kind}/{output.path}"
            made.append(output)
    write_expected("trl", made)


if __name__ == "__main__":
    main()
