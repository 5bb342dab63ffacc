"""A language model of a few thousand parameters, its tokenizer and texts, made in memory."""

from __future__ import annotations

from typing import Any

from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, set_seed

WORDS = [
    *("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"),
    *("plus", "minus", "is", "what", "the", "sum", "of"),
]


def tokenizer() -> PreTrainedTokenizerFast:
    """Words, and three special tokens."""
    names = ["<pad>", "<eos>", "<unk>", *WORDS, "?", "."]
    plain = Tokenizer(
        models.WordLevel({name: index for index, name in enumerate(names)}, unk_token="<unk>")
    )
    plain.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=plain, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>"
    )


def saved(folder: str = "model") -> Any:
    """The model, from a folder: online trainers of trl look its files up again."""
    model().save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return LlamaForCausalLM.from_pretrained(folder)


def model() -> Any:
    """One layer, sixteen wide."""
    set_seed(0)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(WORDS) + 5,
            hidden_size=16,
            intermediate_size=32,
            num_hidden_layers=1,
            num_attention_heads=2,
            max_position_embeddings=64,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=1,
        )
    )


def sums(count: int, column: str = "text") -> Dataset:
    """`what is the sum of ... ?` with its answer, or without it as a prompt."""
    texts = []
    for index in range(count):
        left, right = index % 4, (index // 4) % 4
        asked = f"what is the sum of {WORDS[left]} plus {WORDS[right]} ?"
        texts.append(asked if column == "prompt" else f"{asked} {WORDS[left + right + 1]} .")
    return Dataset.from_dict({column: texts})


def tokens(count: int) -> Dataset:
    """The same texts as tokens with labels."""
    made = tokenizer()(list(sums(count)["text"]))["input_ids"]
    return Dataset.from_dict(
        {"input_ids": made, "labels": made, "attention_mask": [[1] * len(row) for row in made]}
    )
