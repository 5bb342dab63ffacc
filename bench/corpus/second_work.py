"""Second blind corpus, faults of kernels, memory, files and waiting.

Written before any of them ran, without knowledge of the rules that name causes.
"""

from __future__ import annotations

from bench.corpus.row import Row

KERNEL = (
    Row(
        "curious_on_the_way",
        "The entropy of every position is computed over the whole vocabulary, with gradients that "
        "are not needed (class of PrimeIntellect-ai/verifiers#662).",
        "own_sft",
        "kernel",
        plant="""
import torch
words = trainer.model.get_input_embeddings()
def look(module, args, output):
    known = torch.log_softmax(output @ words.weight.T, dim=-1)
    (known.exp() * known).sum(dim=-1)
trainer.model.model.norm.register_forward_hook(look)
""",
    ),
    Row(
        "each_by_itself",
        "A monitor reads the norm of each gradient, one by one, before each update (class of "
        "huggingface/transformers#6999).",
        "reward",
        "kernel",
        plant="""
from transformers import TrainerCallback
class Watch(TrainerCallback):
    def on_pre_optimizer_step(self, args, state, control, **known):
        values = known["model"].parameters()
        self.seen = [value.grad.norm().item() for value in values if value.grad is not None]
trainer.add_callback(Watch())
""",
    ),
)

MEMORY = (
    Row(
        "zeros_stay",
        "Gradients are set to zero between steps instead of freed.",
        "kto",
        "memory",
        plant="""
original = trainer.model.zero_grad
trainer.model.zero_grad = lambda *args, **kwargs: original(set_to_none=False)
""",
    ),
    Row(
        "looked_at_later",
        "A hook keeps the last layer's outputs of every batch for a plot at the end.",
        "sft",
        "memory",
        plant="""
kept = []
def look(module, args, output):
    kept.append(output.detach())
trainer.model.model.norm.register_forward_hook(look)
""",
    ),
)

DATALOADER = (
    Row(
        "measures_everything",
        "The collator reads the whole dataset for its longest answer, for each row that it gets.",
        "dpo",
        "dataloader",
        paired=True,
        plant="""
original = trainer.data_collator
def collate(rows):
    for _ in rows:
        max(len(ids) for ids in trainer.train_dataset[:]["chosen_ids"])
    return original(rows)
trainer.data_collator = collate
""",
    ),
    Row(
        "unpacked_anew",
        "An archive of 80 MB is unpacked again for each batch.",
        "own_sft",
        "dataloader",
        paired=True,
        plant="""
import zlib
packed = zlib.compress(bytes(range(256)) * 8_000)
original = trainer.data_collator
def collate(rows):
    for _ in range(40):
        zlib.decompress(packed)
    return original(rows)
trainer.data_collator = collate
""",
    ),
)

HOST = (
    Row(
        "swept_each_step",
        "Code calls Python's garbage collector after each micro-batch (huggingface/peft#2894).",
        "sft_lora",
        "host",
        paired=True,
        plant="""
import gc
from transformers import TrainerCallback
class Sweep(TrainerCallback):
    def on_substep_end(self, args, state, control, **known):
        gc.collect()
    def on_step_end(self, args, state, control, **known):
        gc.collect()
trainer.add_callback(Sweep())
""",
    ),
    Row(
        "waits_for_leave",
        "A callback reports each step to a remote server and waits for its answer.",
        "reward",
        "host",
        paired=True,
        plant="""
import time
from transformers import TrainerCallback
class Tell(TrainerCallback):
    def on_step_end(self, args, state, control, **known):
        time.sleep(0.1)
trainer.add_callback(Tell())
""",
    ),
)

IO = (
    Row(
        "one_sheet_each",
        "The reward function writes each completion to a separate file and syncs it to disk.",
        "rloo",
        "io",
        plant="""
import json, os, uuid
original = trainer.reward_funcs[0]
def judged(**columns):
    found = list(original(**columns))
    os.makedirs(trainer.args.output_dir, exist_ok=True)
    for text, score in zip(columns["completions"], found, strict=True):
        path = os.path.join(trainer.args.output_dir, f"{uuid.uuid4().hex}.json")
        with open(path, "w") as file:
            json.dump({"text": text, "score": score}, file)
            file.flush()
            os.fsync(file.fileno())
    return found
trainer.reward_funcs[0] = judged
""",
    ),
)

COMMUNICATION = (
    Row(
        "small_parcels",
        "The gradient bucket size is given in another unit, so that each bucket holds one or two "
        "tensors (class of pytorch/pytorch#48880).",
        "own_ranks",
        "communication",
        plant="trainer.accelerator.ddp_handler.bucket_cap_mb = 0.01",
    ),
    Row(
        "told_to_everyone",
        "In each step, each rank sends its log texts to all other ranks.",
        "own_ranks",
        "communication",
        plant="""
class Tell(TrainerCallback):
    def on_step_end(self, args, state, control, **known):
        told = [None] * torch.distributed.get_world_size()
        torch.distributed.all_gather_object(told, ["word " * 20_000])
trainer.add_callback(Tell())
""",
    ),
)

ROWS = (*KERNEL, *MEMORY, *DATALOADER, *HOST, *IO, *COMMUNICATION)
