"""Load the rows for a trainer: read, convert, cut to length, count and fingerprint them."""

from __future__ import annotations

import logging
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from datasets import Dataset

from canary.errors import ConfigError, InputError
from canary.inputs.preconditions import no_rows, require_enough
from canary.inputs.row_shapes import Example, converter_for, is_conversational, shape_of, unpaired
from canary.training.collectors.calls import own_calls
from canary.training.data.sources import read_source
from canary.training.exact.fingerprints import dataset_fingerprint

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from canary.protocol.spec import WorkloadSpec

logger = logging.getLogger(__name__)

# For conversational rows if the tokenizer has no template. A generation prompt ends with a
# newline, so that no token merges across the border between prompt and completion.
DEFAULT_CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{% if not loop.first %}{{ '\\n' }}{% endif %}"
    "{{ message['role'] + ':\\n' + message['content'] | trim }}"
    "{% if message['role'] == 'assistant' %}{{ eos_token }}{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '\\nassistant:\\n' }}{% endif %}"
)


def load_rows(spec: WorkloadSpec, tokenizer: PreTrainedTokenizerBase) -> Dataset:
    """Return the usable rows among the first `dataset_size`, in order, not tokenized.

    Sets DEFAULT_CHAT_TEMPLATE on `tokenizer` if the rows are conversational and it has no template.
    Raises InputError if the dataset is missing, lacks a column or has too few rows for a batch.
    """
    config = spec.config
    source = read_source(spec)
    if config.dataset_size is not None:
        source = source.select(range(min(config.dataset_size, len(source))))
    if len(source) == 0:
        raise no_rows(config)
    convert = converter_for(
        config.training_type, source.column_names, source[0], config.dataset_name
    )
    rows = [row for row in map(convert, source) if row is not None]
    _require_texts(rows, config.dataset_name)
    if not rows:
        raise InputError(
            f"dataset '{config.dataset_name}' has no row with a prompt and an answer to it",
            "check for empty columns, and for pairs of conversations that share no turn",
        )
    if len(rows) < len(source):
        left_out = f"{len(source) - len(rows)} of {len(source)} rows left out: no usable prompt"
        logger.warning(left_out)
        spec.notes.append(left_out)
    if shape_of(config.training_type).takes_apart and "chosen" in rows[0]:
        rows = unpaired(rows)
    if tokenizer.chat_template is None and is_conversational(rows[0]):
        tokenizer.chat_template = DEFAULT_CHAT_TEMPLATE
    require_enough(spec, len(rows))
    usable = Dataset.from_list(_cut_prompts(rows, config.max_prompt_length, tokenizer))
    return usable if spec.rows_dir is None else _on_disk(usable, spec.rows_dir)


TEXT_COLUMNS = ("prompt", "completion", "chosen", "rejected", "messages", "text")


def _require_texts(rows: list[Example], dataset_name: str) -> None:
    """Raise InputError if a prompt or answer is neither text nor messages, or a label no bool."""
    for number, row in enumerate(rows, start=1):
        for column in TEXT_COLUMNS:
            value = row.get(column)
            if value is not None and not isinstance(value, str | list):
                raise InputError(
                    f"dataset '{dataset_name}': '{column}' of usable row {number} is "
                    f"{value!r}, a {type(value).__name__}",
                    "write text, or a list of messages",
                )
        if not isinstance(row.get("label", True), bool):
            raise InputError(
                f"dataset '{dataset_name}': 'label' of usable row {number} is {row['label']!r}",
                "write true for a good completion, false for a bad one",
            )


def _on_disk(rows: Dataset, rows_dir: Path) -> Dataset:
    """Return the same rows, memory-mapped from `rows_dir`: `datasets` then caches their `map`s.

    The folder is named after their fingerprint, so other rows never use this cache. Another rank,
    which may save the same, sees all of them or none.
    """
    folder = rows_dir / dataset_fingerprint(rows)[:16]
    if not folder.exists():
        unfinished = folder.with_name(f"{folder.name}.{os.getpid()}")
        rows.save_to_disk(str(unfinished))
        try:
            unfinished.rename(folder)
        except OSError:
            if not folder.exists():
                raise
            shutil.rmtree(unfinished)
    return Dataset.load_from_disk(str(folder))


def _cut_prompts(
    rows: list[Example], limit: int | None, tokenizer: PreTrainedTokenizerBase
) -> list[Example]:
    if limit is None:
        return rows
    if "prompt" not in rows[0]:
        raise ConfigError(
            "max_prompt_length has no effect: the rows are whole texts without a prompt",
            "remove it; max_length limits them",
            key="max_prompt_length",
        )
    with own_calls():
        return [row | {"prompt": truncate_prompt(row["prompt"], limit, tokenizer)} for row in rows]


Message = dict[str, Any]


def truncate_prompt(
    prompt: str | list[Message], limit: int, tokenizer: PreTrainedTokenizerBase
) -> str | list[Message]:
    """Return the end of `prompt` that fits into `limit` tokens, chat template included.

    A system message stays. The oldest turns go first, then the start of the oldest remaining
    message's content.
    """
    if isinstance(prompt, str):
        return _cut_text(prompt, limit, tokenizer)
    return _cut_messages(prompt, limit, tokenizer)


def _cut_text(text: str, limit: int, tokenizer: PreTrainedTokenizerBase) -> str:
    room = limit - len(_ids("", tokenizer, special=True))
    ids = _ids(text, tokenizer)
    keep = room
    while len(ids) > room:
        if keep < 1:
            raise _too_small(limit)
        text = _decode(ids[-keep:], tokenizer)
        ids = _ids(text, tokenizer)
        keep -= 1  # a split character can encode to more tokens than before: cut one more
    return text


def _cut_messages(
    messages: list[Message], limit: int, tokenizer: PreTrainedTokenizerBase
) -> list[Message]:
    if _count(messages, tokenizer) <= limit:
        return messages
    head = [message for message in messages[:1] if message["role"] == "system"]
    turns = list(messages[len(head) :])
    while _count([*head, *turns], tokenizer) > limit:
        # From the next user message on: some templates need a user message first.
        following = (i for i, message in enumerate(turns) if i > 0 and message["role"] == "user")
        start = next(following, None)
        if start is None:
            return [*head, *_cut_first_content(head, turns, limit, tokenizer)]
        turns = turns[start:]
    return [*head, *turns]


def _cut_first_content(
    head: list[Message], turns: list[Message], limit: int, tokenizer: PreTrainedTokenizerBase
) -> list[Message]:
    first, rest = turns[0], turns[1:]
    ids = _ids(first["content"], tokenizer)
    over = _count([*head, *turns], tokenizer) - limit
    while over > 0:
        if over >= len(ids):
            raise _too_small(limit)
        ids = ids[over:]
        first = first | {"content": _decode(ids, tokenizer)}
        over = _count([*head, first, *rest], tokenizer) - limit
    return [first, *rest]


def _count(messages: list[Message], tokenizer: PreTrainedTokenizerBase) -> int:
    encoded: Any = tokenizer.apply_chat_template(
        messages, add_generation_prompt=True, tokenize=True, return_dict=True
    )
    return len(encoded["input_ids"])


def _ids(text: str, tokenizer: PreTrainedTokenizerBase, special: bool = False) -> list[int]:
    ids: list[int] = tokenizer(text, add_special_tokens=special)["input_ids"]
    return ids


def _decode(ids: list[int], tokenizer: PreTrainedTokenizerBase) -> str:
    return str(tokenizer.decode(ids, skip_special_tokens=False))


def _too_small(limit: int) -> ConfigError:
    return ConfigError(
        f"max_prompt_length {limit} leaves no room for the prompt's text",
        "raise it: the chat template and the later turns fill it",
        key="max_prompt_length",
    )
