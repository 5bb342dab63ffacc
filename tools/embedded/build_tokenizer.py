"""Build the embedded tokenizer: byte-level BPE with role tokens and a chat template."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tools.embedded.tasks import task_stream

if TYPE_CHECKING:
    from tokenizers import Tokenizer

VOCAB_SIZE = 1024
MAX_LENGTH = 512
CORPUS_SEED = 7
CORPUS_TASKS = 20_000

PAD, BOS, EOS = "<|pad|>", "<|bos|>", "<|eos|>"
ROLES = ("<|system|>", "<|user|>", "<|assistant|>")
SPECIAL_TOKENS = (PAD, BOS, EOS, *ROLES)

# A role token opens each turn, so no token crosses the border between prompt and completion. The
# generation mark covers the text of an assistant's turn and its end token.
CHAT_TEMPLATE = (
    "{{- bos_token }}"
    "{%- for message in messages %}"
    "{%- if message['role'] not in ['system', 'user', 'assistant'] %}"
    "{{- raise_exception('unknown role: ' + message['role']) }}"
    "{%- endif %}"
    "{{- '<|' + message['role'] + '|>' }}"
    "{%- if message['role'] == 'assistant' %}"
    "{%- generation %}{{- message['content'] + eos_token }}{%- endgeneration %}"
    "{%- else %}"
    "{{- message['content'] }}"
    "{%- endif %}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|assistant|>' }}{%- endif %}"
)


def train_tokenizer() -> Tokenizer:
    """Return a BPE of VOCAB_SIZE tokens, single digits, trained on tasks from CORPUS_SEED."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    corpus = (
        text
        for task in islice(task_stream(CORPUS_SEED), CORPUS_TASKS)
        for text in (task.prompt, task.answer)
    )
    tokenizer.train_from_iterator(corpus, trainer=trainer)
    return tokenizer


def write_tokenizer(folder: Path) -> list[Path]:
    """Write tokenizer.json, tokenizer_config.json and special_tokens_map.json; same bytes always.

    Merges are written as "a b", which old and new versions of `tokenizers` can read.
    """
    folder.mkdir(parents=True, exist_ok=True)
    state = json.loads(train_tokenizer().to_str())
    model = state["model"]
    model["merges"] = [m if isinstance(m, str) else " ".join(m) for m in model["merges"]]
    model["vocab"] = dict(sorted(model["vocab"].items(), key=lambda item: int(item[1])))
    special = {"bos_token": BOS, "eos_token": EOS, "pad_token": PAD}
    config = {
        **special,
        "additional_special_tokens": list(ROLES),
        "chat_template": CHAT_TEMPLATE,
        "clean_up_tokenization_spaces": False,
        # transformers 4 would add token_type_ids, which Llama refuses when it generates
        "model_input_names": ["input_ids", "attention_mask"],
        "model_max_length": MAX_LENGTH,
        "padding_side": "left",
        "tokenizer_class": "PreTrainedTokenizerFast",
    }
    return [
        _write_json(folder / "tokenizer.json", state),
        _write_json(folder / "tokenizer_config.json", config),
        _write_json(
            folder / "special_tokens_map.json",
            {**special, "additional_special_tokens": list(ROLES)},
        ),
    ]


def _write_json(path: Path, value: dict[str, Any]) -> Path:
    path.write_bytes((json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode("utf-8"))
    return path
