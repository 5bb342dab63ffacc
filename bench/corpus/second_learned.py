"""Second blind corpus, faults of data, tokenization, objective and numerics.

Written before any of them ran, without knowledge of the rules that name causes.
"""

from __future__ import annotations

from bench.corpus.row import Row

DATA = (
    Row(
        "answers_alone",
        "A converter drops the question, and answers are judged without it.",
        "reward",
        "data",
        plant="""
original = trainer.data_collator
mark = trainer.processing_class.convert_tokens_to_ids("<|assistant|>")
def collate(rows):
    names = ("chosen_ids", "rejected_ids")
    return original([
        row | {name: row[name][row[name].index(mark):] for name in names} for row in rows
    ])
trainer.data_collator = collate
""",
    ),
    Row(
        "page_not_found",
        "A crawler was refused, and 3% of the answers are the text of an error page.",
        "sft",
        "data",
        plant="""
coder = trainer.processing_class
page = coder("page not found", add_special_tokens=False)["input_ids"] + [coder.eos_token_id]
def fetched(row, number):
    if number % 32:
        return {"input_ids": row["input_ids"], "labels": row["labels"]}
    pairs = zip(row["input_ids"], row["labels"], strict=True)
    asked = [one for one, label in pairs if label == -100]
    return {"input_ids": asked + page, "labels": [-100] * len(asked) + page}
trainer.train_dataset = trainer.train_dataset.map(fetched, with_indices=True)
""",
    ),
)

TOKENIZATION = (
    Row(
        "space_in_front",
        "A rebuilt tokenizer writes a space before each piece of text.",
        "kto",
        "tokenization",
        before="""
from tokenizers import pre_tokenizers
from transformers import AutoTokenizer
original = AutoTokenizer.from_pretrained
def from_pretrained(*args, **kwargs):
    tokenizer = original(*args, **kwargs)
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=True),
    ])
    return tokenizer
AutoTokenizer.from_pretrained = from_pretrained
""",
    ),
    Row(
        "whose_turn",
        "A new chat template forgets to open the assistant's turn, so that prompts end without it.",
        "rloo",
        "tokenization",
        plant="""
coder = trainer.processing_class
coder.chat_template = coder.chat_template.split("{%- if add_generation_prompt %}")[0]
""",
    ),
)

OBJECTIVE = (
    Row(
        "kept_near_zero",
        "A merged config pulls the scores towards zero, by a hundredth of their square.",
        "reward",
        "objective",
        config={"trainer_args": {"center_rewards_coefficient": 0.01}},
    ),
    Row(
        "counted_unseen",
        "Truncated completions drop out of the loss's numerator but still count in its divisor "
        "(huggingface/trl#6369).",
        "grpo",
        "objective",
        plant="""
original, end = trainer.compute_loss, trainer.processing_class.eos_token_id
def compute_loss(model, inputs, *args, **kwargs):
    ends = (inputs["completion_ids"] == end) & (inputs["completion_mask"] == 1)
    kept = inputs | {"advantages": inputs["advantages"] * ends.any(dim=1)}
    return original(model, kept, *args, **kwargs)
trainer.compute_loss = compute_loss
""",
    ),
)

NUMERICS = (
    Row(
        "turned_roughly",
        "The frequencies of the rotary positions went through bfloat16 "
        "(huggingface/transformers#29285).",
        "sft",
        "numerics",
        plant="""
import torch
speeds = trainer.model.model.rotary_emb.inv_freq
speeds.copy_(speeds.to(torch.bfloat16))
""",
    ),
    Row(
        "rounded_sums",
        "Gradients are added up in bfloat16 (deepspeedai/DeepSpeed#1800).",
        "dpo",
        "numerics",
        plant="""
import torch
def added(value):
    value.grad.copy_(value.grad.to(torch.bfloat16))
for value in trainer.model.parameters():
    if value.requires_grad:
        value.register_post_accumulate_grad_hook(added)
""",
    ),
)

ROWS = (*DATA, *TOKENIZATION, *OBJECTIVE, *NUMERICS)
