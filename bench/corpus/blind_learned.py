"""Blind corpus, faults of data, tokenization, objective and numerics.

Written only from the list of categories and the open corpus, before any of them ran.
"""

from __future__ import annotations

from bench.corpus.row import Row

DATA = (
    Row(
        "rows_in_order",
        "The trainer no longer shuffles the rows but takes them in the file's order "
        "(hiyouga/LlamaFactory#4045).",
        "sft",
        "data",
        plant='trainer.args.train_sampling_strategy = "sequential"',
    ),
    Row(
        "neighbours_answer",
        "A join is off by one, so that each pair is completed with the rejected answer of another "
        "prompt.",
        "dpo",
        "data",
        plant="""
original = trainer.data_collator
def collate(rows):
    answers = [row["rejected_ids"] for row in rows]
    turned = answers[1:] + answers[:1]
    return original([
        row | {"rejected_ids": answer} for row, answer in zip(rows, turned, strict=True)
    ])
trainer.data_collator = collate
""",
    ),
    Row(
        "moved_by_two",
        "A collator moves the labels by one, and the model moves them again.",
        "own_sft",
        "data",
        also="objective",
        plant="""
import torch
original = trainer.data_collator
def collate(rows):
    batch = original(rows)
    moved = torch.full_like(batch["labels"], -100)
    moved[:, :-1] = batch["labels"][:, 1:]
    batch["labels"] = moved
    return batch
trainer.data_collator = collate
""",
    ),
    Row(
        "seen_twice",
        "One file matches two patterns: half of the rows appear twice, the others are missing.",
        "reward",
        "data",
        plant="""
from datasets import concatenate_datasets
rows = trainer.train_dataset
half = rows.select(range(len(rows) // 2))
trainer.train_dataset = concatenate_datasets([half, half])
""",
    ),
    Row(
        "all_good",
        'Labels are parsed from text, and every text counts as true, even "false".',
        "kto",
        "data",
        plant="""
original = trainer.data_collator
def collate(rows):
    return original([row | {"label": bool(str(row["label"]))} for row in rows])
trainer.data_collator = collate
""",
    ),
)

TOKENIZATION = (
    Row(
        "started_twice",
        "The chat template writes the beginning of a sequence, and the tokenizer writes it again "
        "(OpenRLHF/OpenRLHF#393, huggingface/trl#1400).",
        "sft",
        "tokenization",
        plant="""
first = trainer.processing_class.bos_token_id
def again(row):
    return {"input_ids": [first, *row["input_ids"]], "labels": [-100, *row["labels"]]}
trainer.train_dataset = trainer.train_dataset.map(again)
""",
    ),
    Row(
        "marks_as_text",
        "Special tokens are split into pieces of text after the tokenizer was saved and loaded "
        "(class of OpenRLHF/OpenRLHF#1069).",
        "dpo",
        "tokenization",
        before="""
from transformers import AutoTokenizer
original = AutoTokenizer.from_pretrained
def from_pretrained(*args, **kwargs):
    tokenizer = original(*args, **kwargs)
    tokenizer.split_special_tokens = True
    return tokenizer
AutoTokenizer.from_pretrained = from_pretrained
""",
    ),
    Row(
        "small_letters",
        "A converted tokenizer gained a normalizer that writes everything in small letters.",
        "grpo",
        "tokenization",
        before="""
from tokenizers import normalizers
from transformers import AutoTokenizer
original = AutoTokenizer.from_pretrained
def from_pretrained(*args, **kwargs):
    tokenizer = original(*args, **kwargs)
    tokenizer.backend_tokenizer.normalizer = normalizers.Lowercase()
    return tokenizer
AutoTokenizer.from_pretrained = from_pretrained
""",
    ),
    Row(
        "encoded_on_the_way",
        "Each batch decodes rows to text and tokenizes them again, for a check without effect "
        "(class of mlfoundations/open_lm#55).",
        "kto",
        "tokenization",
        also="dataloader",
        plant="""
original, coder = trainer.data_collator, trainer.processing_class
def collate(rows):
    for row in rows:
        for name in ("prompt_ids", "completion_ids"):
            text = coder.decode(row[name])
            coder(text, add_special_tokens=False)
    return original(rows)
trainer.data_collator = collate
""",
    ),
)

OBJECTIVE = (
    Row(
        "no_leash",
        "The config sets the weight of the KL term, but the loss ignores it (THUDM/slime#399).",
        "grpo",
        "objective",
        plant="trainer.beta = 0.0",
    ),
    Row(
        "leash_pulls_away",
        "The KL term has the wrong sign and rewards distance from the reference model "
        "(mll-lab-nu/RAGEN#58).",
        "rloo",
        "objective",
        plant="trainer.beta = -trainer.beta",
    ),
    Row(
        "squared_margin",
        "Another preference loss comes in with a merged config.",
        "dpo",
        "objective",
        config={"trainer_args": {"loss_type": ["ipo"]}},
    ),
    Row(
        "over_all_places",
        "The loss is divided by the number of positions in the batch, padding included (class of "
        "huggingface/transformers#46204).",
        "sft",
        "objective",
        plant="""
import torch
def places(batches, device):
    return torch.tensor(sum(batch["labels"].numel() for batch in batches), device=device)
trainer._get_num_items_in_batch = places
""",
    ),
    Row(
        "sum_for_mean",
        "Micro-batches are added instead of averaged (huggingface/trl#2617).",
        "dpo",
        "objective",
        plant="trainer.loss_is_scaled_for_ga = True",
    ),
    Row(
        "padding_in_sight",
        "The mask is not passed on, so that log-probabilities are conditioned on padding "
        "(huggingface/trl#2708).",
        "grpo",
        "objective",
        plant="""
import torch
original = trainer._get_per_token_logps_and_entropies
def logps(model, input_ids, attention_mask, *args, **kwargs):
    return original(model, input_ids, torch.ones_like(attention_mask), *args, **kwargs)
trainer._get_per_token_logps_and_entropies = logps
""",
    ),
    Row(
        "by_longest",
        "A merged config divides each completion's loss by the maximum length instead of its "
        "tokens (class of huggingface/trl#3938).",
        "grpo",
        "objective",
        config={"trainer_args": {"loss_type": "dr_grpo"}},
    ),
)

NUMERICS = (
    Row(
        "cast_on_the_way",
        "A default switched autocast to bfloat16 on.",
        "kto",
        "numerics",
        plant="""
import torch
trainer.compute_loss_context_manager = lambda: torch.autocast("cpu", dtype=torch.bfloat16)
""",
    ),
    Row(
        "coarse_scores",
        "The loss is computed from bfloat16 outputs that used to be float32 (class of "
        "Modalities/modalities#464, huggingface/transformers#34147).",
        "reward",
        "numerics",
        plant="""
import functools, torch
original = trainer.model.forward
@functools.wraps(original)
def forward(*args, **kwargs):
    found = original(*args, **kwargs)
    found.logits = found.logits.to(torch.bfloat16)
    return found
trainer.model.forward = forward
""",
    ),
    Row(
        "one_overflow",
        "One gradient of one micro-batch overflows, and everything after it is lost.",
        "sft",
        "numerics",
        plant="""
weight = next(value for value in trainer.model.parameters() if value.requires_grad)
seen = []
def grown(gradient):
    seen.append(1)
    return gradient * float("inf") if len(seen) == 7 else gradient
weight.register_hook(grown)
""",
    ),
    Row(
        "half_of_the_bits",
        "A merged config trains in bfloat16.",
        "dpo",
        "numerics",
        config={"dtype": "bfloat16"},
    ),
)

ROWS = (*DATA, *TOKENIZATION, *OBJECTIVE, *NUMERICS)
