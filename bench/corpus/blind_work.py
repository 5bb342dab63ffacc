"""Blind corpus, faults of kernels, memory, files, waiting and the host.

Written only from the list of categories and the open corpus, before any of them ran.
"""

from __future__ import annotations

from bench.corpus.row import Row

KERNEL = (
    Row(
        "looked_at_again",
        "Each micro-batch runs a second forward for a number that the first one already gave "
        "(jingyaogong/minimind#700).",
        "sft",
        "kernel",
        plant="""
import torch
original = trainer.compute_loss
def compute_loss(model, inputs, *args, **kwargs):
    known = {name: value for name, value in inputs.items() if name != "labels"}
    loss = original(model, inputs, *args, **kwargs)
    with torch.no_grad():
        model(**known)
    return loss
trainer.compute_loss = compute_loss
""",
    ),
    Row(
        "one_by_one",
        "The sequences of a batch go through the model one after the other, not together.",
        "reward",
        "kernel",
        plant="""
import functools, torch
original = trainer.model.forward
@functools.wraps(original)
def forward(input_ids=None, attention_mask=None, **kwargs):
    parts = [
        original(
            input_ids=input_ids[i : i + 1], attention_mask=attention_mask[i : i + 1], **kwargs
        )
        for i in range(len(input_ids))
    ]
    parts[0].logits = torch.cat([part.logits for part in parts])
    return parts[0]
trainer.model.forward = forward
""",
    ),
    Row(
        "checks_left_on",
        "Autograd's search for NaN was left on after debugging "
        "(Lightning-AI/pytorch-lightning#12344).",
        "dpo",
        "kernel",
        also="host",
        before="""
import torch
torch.autograd.set_detect_anomaly(True)
""",
    ),
)

MEMORY = (
    Row(
        "batches_kept",
        "The collator keeps each batch in a list for a dump that never happens.",
        "reward",
        "memory",
        plant="""
original, kept = trainer.data_collator, []
def collate(rows):
    batch = original(rows)
    kept.append(batch)
    return batch
trainer.data_collator = collate
""",
    ),
    Row(
        "second_copy",
        "A full copy of the weights is kept for an average that is switched off.",
        "sft",
        "memory",
        plant="""
import copy
trainer.earlier = copy.deepcopy(trainer.model)
""",
    ),
    Row(
        "texts_kept",
        "Texts for the log pile up in the process, 40 MB per step, and are never sent.",
        "dpo",
        "memory",
        paired=True,
        plant="""
from transformers import TrainerCallback
class Pile(TrainerCallback):
    def __init__(self):
        self.kept = []
    def on_step_end(self, args, state, control, **known):
        self.kept.append(b"a" * 40_000_000)
trainer.add_callback(Pile())
""",
    ),
)

DATALOADER = (
    Row(
        "far_away_rows",
        "Each row is read over a slow network file system.",
        "reward",
        "dataloader",
        paired=True,
        plant="""
import time
from datasets import Dataset
original = Dataset.__getitems__
def read(self, keys):
    time.sleep(0.05 * len(keys))
    return original(self, keys)
Dataset.__getitems__ = read
""",
    ),
    Row(
        "ordered_anew",
        "The sampler sorts a long list before each row that it gives.",
        "sft",
        "dataloader",
        paired=True,
        plant="""
from torch.utils.data import RandomSampler
original = RandomSampler.__iter__
def order(self):
    for index in original(self):
        sorted(range(300_000), key=lambda number: -number)
        yield index
RandomSampler.__iter__ = order
""",
    ),
)

HOST = (
    Row(
        "walks_everything",
        "A callback runs a long loop in Python before each step.",
        "sft",
        "host",
        paired=True,
        plant="""
from transformers import TrainerCallback
class Walk(TrainerCallback):
    def on_step_begin(self, args, state, control, **known):
        total = 0
        for number in range(4_000_000):
            total += number
trainer.add_callback(Walk())
""",
    ),
    Row(
        "never_idle",
        "A thread polls in a loop of pure Python instead of waiting.",
        "sft",
        "host",
        paired=True,
        plant="""
import threading
def ask():
    number = 0
    while True:
        number = (number + 1) % 1000
threading.Thread(target=ask, daemon=True).start()
""",
    ),
    Row(
        "traced_allocations",
        "PYTHONTRACEMALLOC was left in the runner's environment after the search for a leak.",
        "sft",
        "host",
        also="environment",
        paired=True,
        environment={"PYTHONTRACEMALLOC": "1"},
    ),
)

IO = (
    Row(
        "whole_story_each_time",
        "Each step rewrites the complete log so far (class of knoveleng/open-rs#17).",
        "grpo",
        "io",
        plant="""
import json, os
from transformers import TrainerCallback
class Story(TrainerCallback):
    def __init__(self):
        self.told = []
    def on_step_end(self, args, state, control, **known):
        self.told += [{"step": state.global_step, "text": "word " * 200} for _ in range(500)]
        os.makedirs(args.output_dir, exist_ok=True)
        with open(os.path.join(args.output_dir, "told.json"), "w") as file:
            json.dump(self.told, file)
            file.flush()
            os.fsync(file.fileno())
trainer.add_callback(Story())
""",
    ),
    Row(
        "weights_each_time",
        "A callback writes the weights to disk after each step, for a server that reads them once "
        "an hour.",
        "dpo",
        "io",
        plant="""
import os, torch
from transformers import TrainerCallback
class Hand(TrainerCallback):
    def on_step_end(self, args, state, control, **known):
        os.makedirs(args.output_dir, exist_ok=True)
        torch.save(known["model"].state_dict(), os.path.join(args.output_dir, "last.pt"))
trainer.add_callback(Hand())
""",
    ),
)

COMMUNICATION = (
    Row(
        "every_number_shared",
        "Each logged number is averaged over the ranks separately, in each micro-batch.",
        "own_ranks",
        "communication",
        plant="""
original = trainer.compute_loss
def compute_loss(*args, **kwargs):
    loss = original(*args, **kwargs)
    for _ in range(8):
        torch.distributed.all_reduce(loss.detach().clone())
    return loss
trainer.compute_loss = compute_loss
""",
    ),
    Row(
        "sent_each_step",
        "All weights are sent from the first rank to the others before each step, though they are "
        "equal.",
        "own_ranks",
        "communication",
        plant="""
class Send(TrainerCallback):
    def on_step_begin(self, args, state, control, **known):
        for value in known["model"].parameters():
            torch.distributed.broadcast(value.data, 0)
trainer.add_callback(Send())
""",
    ),
    Row(
        "one_is_late",
        "One rank is slower than the other, which waits for it in each step "
        "(traceopt-ai/traceml#252).",
        "own_ranks",
        "communication",
        also="host",
        paired=True,
        plant="""
class Late(TrainerCallback):
    def on_step_begin(self, args, state, control, **known):
        if rank == 1:
            time.sleep(0.4)
trainer.add_callback(Late())
""",
    ),
)

ENVIRONMENT = (
    Row(
        "for_any_processor",
        "The runner's new image requests code that runs on any CPU.",
        "sft",
        "environment",
        also="kernel",
        paired=True,
        environment={
            "ATEN_CPU_CAPABILITY": "default",
            "MKL_ENABLE_INSTRUCTIONS": "SSE4_2",
            "ONEDNN_MAX_CPU_ISA": "SSE41",
        },
    ),
)

ROWS = (*KERNEL, *MEMORY, *DATALOADER, *HOST, *IO, *COMMUNICATION, *ENVIRONMENT)
