"""transformers: a training of twelve steps with two evaluations."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Any

import tiny
import trained
from common import fresh, write_expected
from transformers import DataCollatorForSeq2Seq, Trainer, TrainingArguments


def train(folder: Path) -> Any:
    trainer = Trainer(
        model=tiny.model(),
        args=TrainingArguments(
            output_dir=str(folder),
            max_steps=12,
            per_device_train_batch_size=4,
            learning_rate=3e-3,
            logging_steps=1,
            eval_strategy="steps",
            eval_steps=6,
            save_strategy="no",
            report_to=["tensorboard"],
            include_num_input_tokens_seen="all",
            use_cpu=True,
        ),
        train_dataset=tiny.tokens(48),
        eval_dataset=tiny.tokens(8),
        processing_class=tiny.tokenizer(),
        data_collator=DataCollatorForSeq2Seq(tiny.tokenizer()),
    )
    trainer.train()
    return trainer


def main() -> None:
    folder = fresh("transformers")
    history = trained.run(folder, train).state.log_history
    names = {
        "loss": "loss",
        "grad_norm": "grad_norm",
        "learning_rate": "learning_rate",
        "tokens_seen": "num_input_tokens_seen",
        "tokens_per_sec": "train_tokens_per_second",
    }
    names = {ours: name for ours, name in names.items() if trained.values(history, name)}
    own = f"the framework's own writer transformers {version('transformers')}"
    write_expected("transformers", trained.outputs(history, names, own))


if __name__ == "__main__":
    main()
