"""A script of a user's own that trains on several ranks, and ways to start it."""

from __future__ import annotations

import sys
from pathlib import Path

SCRIPT = '''
"""Trains a tiny model under torchrun; knows nothing of the canary."""
import contextlib, os, sys, time
import torch
from datasets import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback
from transformers import TrainingArguments, set_seed

set_seed(0)
rank = int(os.environ["RANK"])


class Odd(TrainerCallback):
    def on_step_begin(self, args, state, control, **kwargs):
        if rank == 1:
            at_each_step(state.global_step)


def at_each_step(done):
    EACH_STEP


shape = dict(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2)
model = LlamaForCausalLM(
    LlamaConfig(**shape, num_attention_heads=2, num_key_value_heads=2, tie_word_embeddings=False)
)
drawn = torch.Generator().manual_seed(0)
ids = torch.randint(0, 64, (128, 16), generator=drawn).tolist()
rows = Dataset.from_list([{"input_ids": row, "labels": row} for row in ids])
arguments = TrainingArguments(
    output_dir="out", max_steps=STEPS, per_device_train_batch_size=2,
    gradient_accumulation_steps=4, use_cpu=True, report_to="none", save_strategy="no",
    logging_steps=1, logging_nan_inf_filter=False, disable_tqdm=True, bf16=False,
    ddp_find_unused_parameters=False,
)
trainer = Trainer(model=model, args=arguments, train_dataset=rows, callbacks=[Odd()])
BEFORE
trainer.train()
if rank == 0:
    print("losses", [entry["loss"] for entry in trainer.state.log_history if "loss" in entry])
torch.distributed.barrier()
# Now and then torch aborts a rank that leaves by itself ("terminate called without an active
# exception"), watched or not.
sys.stdout.flush()
os._exit(0)
'''

TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")


def rank_script(
    folder: Path, *, steps: int = 6, each_step: str = "pass", before: str = ""
) -> tuple[str, ...]:
    """Writes the script and returns the command that starts it on two ranks.

    `each_step` runs on rank 1 when `done` steps are behind it; `before` once the trainer is built.
    """
    folder.mkdir(parents=True, exist_ok=True)
    text = SCRIPT.replace("STEPS", str(steps)).replace("EACH_STEP", each_step)
    (folder / "train.py").write_text(text.replace("BEFORE", before))
    return (*TORCHRUN, "train.py")
