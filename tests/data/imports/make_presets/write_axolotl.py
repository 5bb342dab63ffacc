"""axolotl: a training of twelve steps with its `AxolotlTrainer`, on a device that is not there.

Its memory readings are replaced by constants: this machine has no device.
"""

from __future__ import annotations

import os
from importlib.metadata import version
from pathlib import Path
from typing import Any

import tiny
import trained
from common import GIB, fresh, write_expected
from standins import stand_in

stand_in("numba", "evaluate")

from axolotl.core.trainers import base
from axolotl.core.training_args import AxolotlTrainingArguments
from axolotl.utils.callbacks.tokens_per_second import TokensPerSecondCallback
from transformers import DataCollatorForSeq2Seq


def train(folder: Path) -> Any:
    base.get_gpu_memory_usage = lambda *device: (11.504, 12.251, 14.003)
    trainer = base.AxolotlTrainer(
        model=tiny.model(),
        args=AxolotlTrainingArguments(
            output_dir=str(folder),
            max_steps=12,
            per_device_train_batch_size=4,
            learning_rate=3e-3,
            logging_steps=1,
            eval_strategy="steps",
            eval_steps=6,
            save_strategy="no",
            report_to=["tensorboard"],
            include_tkps=True,
            use_cpu=True,
        ),
        train_dataset=tiny.tokens(48),
        eval_dataset=tiny.tokens(8),
        processing_class=tiny.tokenizer(),
        data_collator=DataCollatorForSeq2Seq(tiny.tokenizer()),
        eval_data_collator=DataCollatorForSeq2Seq(tiny.tokenizer()),
    )
    trainer.add_callback(TokensPerSecondCallback())
    trainer.train()
    return trainer


def main() -> None:
    os.environ.setdefault("AXOLOTL_DO_NOT_TRACK", "1")
    folder = fresh("axolotl")
    history = trained.run(folder, train).state.log_history
    names = {
        "loss": "loss",
        "grad_norm": "grad_norm",
        "learning_rate": "learning_rate",
        "perplexity": "ppl",
        "tokens_per_sec_per_gpu": "tokens/train_per_sec_per_gpu",
        "tokens_seen": "tokens/total",
        "max_memory_bytes": "memory/max_allocated (GiB)",
    }
    names = {ours: name for ours, name in names.items() if trained.values(history, name)}
    own = (
        f"the framework's own writer axolotl {version('axolotl')} "
        f"on transformers {version('transformers')}; its memory readings are constants"
    )
    made = trained.outputs(history, names, own)
    for output in made:
        if told := output.metrics.get("max_memory_bytes"):
            told |= {"first": 12.25 * GIB, "last": 12.25 * GIB}
            told.pop("last_any_of")
    write_expected("axolotl", made)


if __name__ == "__main__":
    main()
