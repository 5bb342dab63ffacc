"""A typical user's PPO script, for `canary exec` on the versions of trl that have PPO.

`canary exec -- python bench/stacks_ppo.py FOLDER STEPS`: one update per step, on the embedded data.
"""

from __future__ import annotations

import importlib
import json
import sys
from typing import Any

from datasets import Dataset
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    set_seed,
)

from canary.inputs.embedded import data_file, tiny_dir

PLACES = ("trl.experimental.ppo", "trl")
BATCH = 4
ROWS = 64


def ppo() -> tuple[Any, Any]:
    """Return PPOConfig and PPOTrainer, from the module where this version of trl has them."""
    for place in PLACES:
        try:
            module = importlib.import_module(place)
            if "total_episodes" in module.PPOConfig.__dataclass_fields__:
                return module.PPOConfig, module.PPOTrainer
        except (ImportError, AttributeError):
            continue
    raise SystemExit("this trl has no PPO that is a Trainer")


def main(folder: str, steps: int) -> None:
    """Train `steps` updates. Writes only the trainer's folder."""
    config_class, trainer_class = ppo()
    set_seed(0)
    source = str(tiny_dir())
    tokenizer = AutoTokenizer.from_pretrained(source, padding_side="left")
    lines = data_file("prompt_only").read_text(encoding="utf-8").splitlines()[:ROWS]
    rows = Dataset.from_list([{"input_ids": _ids(tokenizer, line)} for line in lines])
    classifier = AutoModelForSequenceClassification
    trainer = trainer_class(
        args=config_class(
            output_dir=folder,
            total_episodes=steps * BATCH,
            per_device_train_batch_size=BATCH,
            gradient_accumulation_steps=1,
            num_mini_batches=1,
            num_ppo_epochs=1,
            local_rollout_forward_batch_size=BATCH,
            num_sample_generations=0,
            response_length=8,
            learning_rate=1e-5,
            missing_eos_penalty=1.0,
            report_to="none",
            save_strategy="no",
            bf16=False,
            use_cpu=True,
            seed=0,
        ),
        processing_class=tokenizer,
        model=AutoModelForCausalLM.from_pretrained(source),
        ref_model=AutoModelForCausalLM.from_pretrained(source),
        reward_model=classifier.from_pretrained(source, num_labels=1),
        value_model=classifier.from_pretrained(source, num_labels=1),
        train_dataset=rows,
        eval_dataset=rows.select(range(BATCH)),
    )
    trainer.train()


def _ids(tokenizer: Any, line: str) -> list[int]:
    text = tokenizer.apply_chat_template(
        json.loads(line)["prompt"], add_generation_prompt=True, tokenize=False
    )
    ids: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
    return ids


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
