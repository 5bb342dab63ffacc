"""Second blind corpus, faults of optimizer, adapter and rollout.

Written before any of them ran, without knowledge of the rules that name causes.
"""

from __future__ import annotations

from bench.corpus.row import Row

OPTIMIZER = (
    Row(
        "two_nines",
        "The second moments are averaged with 0.99, whatever the config says "
        "(deepspeedai/DeepSpeed#8495).",
        "kto",
        "optimizer",
        plant="""
original = trainer.create_optimizer
def create(*args, **kwargs):
    found = original(*args, **kwargs)
    for group in found.param_groups:
        group["betas"] = (group["betas"][0], 0.99)
    return found
trainer.create_optimizer = create
""",
    ),
    Row(
        "held_back_twice",
        "Gradients are clipped after each micro-batch too (huggingface/transformers#1563).",
        "grpo",
        "optimizer",
        plant="""
import torch
original = trainer.training_step
def training_step(*args, **kwargs):
    loss = original(*args, **kwargs)
    values = [value for value in trainer.model.parameters() if value.grad is not None]
    torch.nn.utils.clip_grad_norm_(values, trainer.args.max_grad_norm)
    return loss
trainer.training_step = training_step
""",
    ),
    Row(
        "half_of_the_slope",
        "The schedule is planned for as many steps as there are micro-batches (class of "
        "axolotl-ai-cloud/axolotl#977).",
        "dpo_lora",
        "optimizer",
        plant="""
original = trainer.create_scheduler
def create(num_training_steps, *args, **kwargs):
    planned = num_training_steps * trainer.args.gradient_accumulation_steps
    return original(planned, *args, **kwargs)
trainer.create_scheduler = create
""",
    ),
)

ADAPTER = (
    Row(
        "not_from_nothing",
        "An option for tests draws both halves of a new adapter at random. It changes the model "
        "before any learning.",
        "dpo_lora",
        "adapter",
        plant="""
import torch
drawn = torch.Generator().manual_seed(0)
with torch.no_grad():
    for name, value in trainer.model.named_parameters():
        if ".lora_B." in name:
            value.normal_(std=0.02, generator=drawn)
""",
    ),
    Row(
        "six_of_seven",
        "A pattern of names leaves one kind of layer without an adapter (class of "
        "unslothai/unsloth#9326).",
        "sft_lora",
        "adapter",
        before="""
from peft import LoraConfig
original = LoraConfig.__post_init__
def shaped(self):
    letters = ("q", "k", "v", "o", "gate", "up")
    self.target_modules = [f"{name}_proj" for name in letters]
    original(self)
LoraConfig.__post_init__ = shaped
""",
    ),
)

ROLLOUT = (
    Row(
        "no_word_twice",
        "Sampling avoids repetitions, because the checkpoint's generation config says so "
        "(verl-project/verl#7270).",
        "rloo",
        "rollout",
        config={"trainer_args": {"repetition_penalty": 1.05}},
    ),
    Row(
        "there_and_back",
        "The server returns completions as text. Tokenizing them again does not always give the "
        "sampled ids (NovaSky-AI/SkyRL#123).",
        "grpo",
        "rollout",
        also="tokenization",
        plant="""
original, coder = trainer._generate_single_turn, trainer.processing_class
def generated(*args, **kwargs):
    rows, scores = original(*args, **kwargs)
    texts = [coder.decode(row) for row in rows]
    again = [coder(text, add_special_tokens=False)["input_ids"] for text in texts]
    return [new or old for new, old in zip(again, rows, strict=True)], scores
trainer._generate_single_turn = generated
""",
    ),
)

ROWS = (*OPTIMIZER, *ADAPTER, *ROLLOUT)
