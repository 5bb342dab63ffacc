"""Cut prompts from the left to `max_prompt_length` tokens; trl no longer does this."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from canary.errors import ConfigError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

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
        shorter = _without_oldest_turn(turns)
        if not shorter:
            return [*head, *_cut_first_content(head, turns, limit, tokenizer)]
        turns = shorter
    return [*head, *turns]


def _without_oldest_turn(turns: list[Message]) -> list[Message]:
    """Return the turns from the next user message on: some templates need a user message first."""
    following = (i for i, message in enumerate(turns) if i > 0 and message["role"] == "user")
    start = next(following, None)
    return turns[start:] if start is not None else []


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
