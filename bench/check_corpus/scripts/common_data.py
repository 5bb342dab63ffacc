"""Rows, chats and a small BPE tokenizer for the scripts. No network, same output on every call."""

from __future__ import annotations

import random

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

WORDS = [
    "river",
    "apple",
    "stone",
    "cloud",
    "tiger",
    "lemon",
    "table",
    "music",
    "green",
    "window",
    "garden",
    "planet",
    "silver",
    "coffee",
    "mountain",
    "paper",
    "bridge",
    "candle",
    "forest",
    "button",
    "ocean",
    "rabbit",
    "summer",
    "winter",
    "pencil",
    "castle",
    "orange",
]
CHAT_TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}"
    "{{ '<|' + m['role'] + '|>\n' + m['content'] + eos_token + '\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}"
)


def question(rng: random.Random) -> dict[str, str]:
    """One question with its answer; answers have 1 to about 40 tokens."""
    kind = rng.randrange(4)
    if kind == 0:
        word = rng.choice(WORDS)
        return {"prompt": f"Spell {word}.", "answer": " ".join(word)}
    if kind == 1:
        start, n = rng.randrange(20), rng.randrange(2, 12)
        numbers = " ".join(str(start + i) for i in range(n))
        return {"prompt": f"Count from {start} to {start + n - 1}.", "answer": numbers}
    if kind == 2:
        a, b = rng.randrange(30), rng.randrange(30)
        return {"prompt": f"How much is {a} plus {b}?", "answer": str(a + b)}
    chosen = rng.sample(WORDS, rng.randrange(2, 6))
    return {
        "prompt": "Write these words in reverse order: " + ", ".join(chosen),
        "answer": ", ".join(reversed(chosen)),
    }


def questions(n: int = 96, seed: int = 0) -> list[dict[str, str]]:
    """Questions with answers of very unequal lengths."""
    rng = random.Random(seed)
    return [question(rng) for _ in range(n)]


def chats(n: int = 64, seed: int = 1, max_turns: int = 3) -> list[list[dict[str, str]]]:
    """Conversations of one to `max_turns` questions, in the format of chat templates."""
    rng = random.Random(seed)
    out = []
    for _ in range(n):
        messages = []
        for _ in range(rng.randrange(1, max_turns + 1)):
            row = question(rng)
            messages.append({"role": "user", "content": row["prompt"]})
            messages.append({"role": "assistant", "content": row["answer"]})
        out.append(messages)
    return out


def pairs(n: int = 96, seed: int = 2) -> list[dict[str, str]]:
    """Questions with a right answer (`chosen`) and the answer of another question (`rejected`)."""
    rng = random.Random(seed)
    out = []
    for _ in range(n):
        row, other = question(rng), question(rng)
        out.append(
            {"prompt": row["prompt"], "chosen": row["answer"], "rejected": other["answer"] + " no"}
        )
    return out


def build_tokenizer(
    add_bos: bool = False, pad: str = "<pad>", side: str = "right"
) -> PreTrainedTokenizerFast:
    """A byte-level BPE of 384 tokens with a chat template; `pad` may be the EOS."""
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    specials = ["<pad>", "<s>", "</s>", "<|user|>", "<|assistant|>", "<|system|>"]
    core.train_from_iterator(
        (f"{r['prompt']} {r['answer']}" for r in questions(400, seed=7)),
        trainers.BpeTrainer(
            vocab_size=384,
            special_tokens=specials,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    if add_bos:
        core.post_processor = processors.TemplateProcessing(
            single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)]
        )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core, bos_token="<s>", eos_token="</s>", pad_token=pad, padding_side=side
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer
