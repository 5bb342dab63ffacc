"""LLaMA-Factory: `trainer_log.jsonl` by its `LogCallback`, in a training of twelve steps.

Its memory readings are replaced by constants: this machine has no device.
"""

from __future__ import annotations

import json
import os
from importlib.metadata import version
from pathlib import Path
from typing import Any

os.environ |= {"DISABLE_VERSION_CHECK": "1", "RECORD_VRAM": "1"}

import tiny
import trained
from common import GIB, Output, fresh, write_expected
from llamafactory.train import callbacks
from transformers import DataCollatorForSeq2Seq, Trainer, TrainingArguments


def train(folder: Path) -> Any:
    callbacks.get_peak_memory = lambda: (int(12.251 * GIB), int(14.003 * GIB))
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
        callbacks=[callbacks.LogCallback()],
    )
    trainer.train()
    return trainer


def main() -> None:
    folder = fresh("llama-factory")
    history = trained.run(folder, train).state.log_history
    own = (
        f"the framework's own writer llamafactory {version('llamafactory')} "
        f"on transformers {version('transformers')}; its memory readings are constants"
    )
    steps = [record["step"] for record in history if "loss" in record]
    log = Output("trainer_log.jsonl", "jsonl", own, steps)
    log.note = "rows of evaluations and a last row without loss stand among the others"
    for ours, there, name in (
        ("loss", "loss", "loss"),
        ("learning_rate", "lr", "learning_rate"),
        ("tokens_seen", "total_tokens", "num_input_tokens_seen"),
    ):
        log.has(ours, there, trained.values(history, name))
    log.has("validation_loss", "eval_loss", [r["eval_loss"] for r in history if "eval_loss" in r])
    rows = [json.loads(line) for line in (folder / "trainer_log.jsonl").read_text().splitlines()]
    log.has(
        "tokens_per_sec",
        "throughput",
        [row["throughput"] for row in rows if "loss" in row],
        last_any_of=[row["throughput"] for row in rows if row["current_steps"] == 12],
    )
    log.has("max_memory_bytes", "vram_allocated", [12.25] * len(steps), GIB)
    names = {"loss": "loss", "grad_norm": "grad_norm", "learning_rate": "learning_rate"}
    state, board, _ = trained.outputs(history, names, own)
    (folder / "console.log").unlink()
    write_expected("llama-factory", [log, state, board])


if __name__ == "__main__":
    main()
