"""Rows of a data set that end with the start of another answer."""

from __future__ import annotations

from typing import Any

ROWS = 16
"""Rows that are read."""
LEAST = 4
"""Characters without white space that begin an answer for sure."""


def open_turns(tokenizer: Any, rows: Any) -> tuple[int, int] | None:
    """Return how many rows were read, and how many end as the chat template begins an answer; None
    if the template begins none, or the rows hold no `input_ids`."""
    if rows is None or "input_ids" not in rows.column_names:
        return None
    if not getattr(tokenizer, "chat_template", None):
        return None
    chat = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    try:
        closed, opened = (
            str(tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=prompt))
            for prompt in (False, True)
        )
    except Exception:  # noqa: BLE001 - a template may refuse any chat
        return None
    start = "".join(opened.removeprefix(closed).split())
    if not opened.startswith(closed) or len(start) < LEAST:
        return None
    count = min(ROWS, len(rows))
    texts = (tokenizer.decode(rows[at]["input_ids"]) for at in range(count))
    ends = [str(getattr(tokenizer, f"{name}_token", None)) for name in ("eos", "pad")]
    return count, sum(_bare(str(text), ends).endswith(start) for text in texts)


def _bare(text: str, ends: list[str]) -> str:
    """Return a text without white space, and without EOS or padding at its end."""
    bare = "".join(text.split())
    while end := next((one for one in ends if bare.endswith(one)), ""):
        bare = bare.removesuffix(end)
    return bare
