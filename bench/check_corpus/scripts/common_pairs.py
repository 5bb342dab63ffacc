"""Tiny models, a tokenizer of words, rows of unequal length: for preference and RL scripts."""

import random
import tempfile

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    LlamaForSequenceClassification,
    PreTrainedTokenizerFast,
)

SPECIAL = ["<pad>", "<s>", "</s>", "<unk>", "<user>", "<bot>", "<sys>"]
NOUNS = [f"n{i}" for i in range(16)]
VERBS = [f"v{i}" for i in range(8)]
OTHER = [
    "please",
    "name",
    "two",
    "things",
    "be",
    "brief",
    "yes",
    "no",
    "good",
    "bad",
    "and",
    "the",
    ".",
]
VOCABULARY = [*SPECIAL, *NOUNS, *VERBS, *OTHER]
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}"
    "{% if m['role'] == 'user' %}{{ ' <user> ' + m['content'] + ' ' }}"
    "{% elif m['role'] == 'system' %}{{ ' <sys> ' + m['content'] + ' ' }}"
    "{% else %}{{ ' <bot> ' + m['content'] + ' ' + eos_token }}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}{{ ' <bot>' }}{% endif %}"
)


def word_tokenizer(padding_side="right"):
    backend = Tokenizer(
        models.WordLevel({word: i for i, word in enumerate(VOCABULARY)}, unk_token="<unk>")
    )
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token="<pad>",
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
        additional_special_tokens=["<user>", "<bot>", "<sys>"],
        padding_side=padding_side,
    )
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def llama_config(**changes):
    values = {
        "vocab_size": len(VOCABULARY),
        "hidden_size": 48,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 128,
        "initializer_range": 0.15,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    return LlamaConfig(**values | changes)


def small_llama(seed=0, **changes):
    torch.manual_seed(seed)
    return LlamaForCausalLM(llama_config(**changes))


def small_classifier(seed=0, **changes):
    torch.manual_seed(seed)
    return LlamaForSequenceClassification(llama_config(num_labels=1, **changes))


def small_gpt2(seed=0, dropout=0.0):
    torch.manual_seed(seed)
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=len(VOCABULARY),
            n_positions=128,
            n_embd=48,
            n_layer=2,
            n_head=4,
            resid_pdrop=dropout,
            embd_pdrop=dropout,
            attn_pdrop=dropout,
            initializer_range=0.15,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=2,
        )
    )


def questions(n, seed=0):
    """Return n user texts, each with the two nouns that a good answer names."""
    rng = random.Random(seed)
    out = []
    for _ in range(n):
        nouns = rng.sample(NOUNS, 2)
        filler = rng.choices(VERBS, k=rng.randint(0, 6))
        out.append((" ".join(["please", "name", *nouns, *filler, "."]), nouns))
    return out


def pairs(n, seed=0):
    """Return n rows of prompt, chosen and rejected text, all of unequal length."""
    rng = random.Random(seed + 1)
    rows = []
    for text, nouns in questions(n, seed):
        good = ["yes", *nouns, *rng.choices(VERBS, k=rng.randint(0, 5))]
        bad = ["no", *rng.sample(NOUNS, 3), *rng.choices(OTHER, k=rng.randint(0, 7))]
        rows.append({"prompt": text, "chosen": " ".join(good), "rejected": " ".join(bad)})
    return rows


def as_chat(row):
    """Return a row of `pairs` with messages in place of texts."""
    return {
        "prompt": [{"role": "user", "content": row["prompt"]}],
        "chosen": [{"role": "assistant", "content": row["chosen"]}],
        "rejected": [{"role": "assistant", "content": row["rejected"]}],
    }


def scratch():
    """Return a fresh folder for checkpoints and logs."""
    return tempfile.mkdtemp(prefix="pairs_")
