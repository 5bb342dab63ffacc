"""What the chat template gives."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from canary.relations.conversations import LEAST_MARK, Marks, marks_of
from canary.relations.documents import Document, Example
from canary.relations.matching import Matched, decoded, matched, special_texts
from canary.relations.relation import CannotAsk, Look, Outcome, Relation, broken, holds, token_call

RELATION = Relation(
    "chat_template",
    "what is trained",
    "a training row begins with the prompt that the chat template writes, with at most one BOS",
    "the row was rendered by another template, or in parts that each begin anew, or tokenized with "
    "a second BOS",
    "https://github.com/huggingface/alignment-handbook/issues/127",
    invariants=("at_most_one_bos",),
)
AROUND = 3
"""Tokens that a message shows."""
SHOWN = 40
"""Characters of the start of a conversation that a message shows."""


def ask(look: Look) -> Outcome:
    """Compare the beginning of each row with the rendered turns before its last answer."""
    token_call(look)
    if look.tokenizer is None:
        raise CannotAsk("no tokenizer was seen")
    if not getattr(look.tokenizer, "chat_template", None):
        raise CannotAsk("the tokenizer has no chat template")
    count = 0
    for call in look.calls:
        if call.ids is None or not call.scores_tokens:
            continue
        for document in look.documents(call):
            again = _begins_again(look, document)
            if again is not None:
                return broken(RELATION, again, f"row {document.row}")
            rows = matched(document, look.examples, look.tokenizer)
            prompt = _prompt(look, rows[0]) if rows else None
            if prompt is None or _is_cut_at_the_start(look, document):
                continue
            count += 1
            apart = _apart(look, document, prompt)
            if apart is not None:
                return broken(
                    RELATION, apart[1], f"row {document.row}, token {document.first + apart[0]}"
                )
    if not count:
        raise CannotAsk("no row is known to come from a conversation")
    return holds(RELATION, f"{count} rows begin with the prompt that the chat template writes")


def _prompt(look: Look, row: Matched) -> str | None:
    """Return the rendered turns before the last answer; None if the row has no such turns."""
    turns = _history(row)
    if not turns or not isinstance(turns[-1], Mapping) or turns[-1].get("role") == "assistant":
        return None
    if not _is_of_trl(look) and not _is_rendered(look, row.document):
        return None
    own = getattr(look.trainer, "chat_template", None)
    tools: Any = row.example.get("tools")
    return str(
        look.tokenizer.apply_chat_template(
            turns,
            tokenize=False,
            add_generation_prompt=True,
            tools=json.loads(tools) if isinstance(tools, str) else tools,
            **({"chat_template": own} if isinstance(own, str) else {}),
            **(row.example.get("chat_template_kwargs") or {}),
        )
    )


def _history(row: Matched) -> list[Any]:
    example: Example = row.example
    if row.side != "messages":
        prompt = example.get("prompt")
        return prompt if isinstance(prompt, list) else []
    messages = list(example["messages"])
    while messages and messages[-1].get("role") != "assistant":
        messages.pop()
    return messages[:-1]


def _is_of_trl(look: Look) -> bool:
    return any(one.__module__.startswith("trl.") for one in type(look.trainer).__mro__)


def _is_rendered(look: Look, document: Document) -> bool:
    """Whether a row has the marks of the template: another form may be on purpose."""
    marks = marks_of(look.tokenizer)
    return marks is not None and marks.answer in decoded(document.ids, look.tokenizer).whole


def _begins_again(look: Look, document: Document) -> str | None:
    """Return a sentence if an answer follows on what the template writes only at the start of a
    conversation; None if not."""
    marks = marks_of(look.tokenizer)
    if marks is None or len(marks.start.strip()) < LEAST_MARK:
        return None
    text = decoded(document.ids, look.tokenizer).whole
    asked = text.find(marks.start + marks.user)
    if asked < 0 or not any(marks.start + one in text[asked:] for one in _headers(look, marks)):
        return None
    return (
        f"{marks.start[:SHOWN]!r}, which begins a conversation, comes again between a message of "
        "the user and its answer"
    )


def _headers(look: Look, marks: Marks) -> list[str]:
    """Return what may stand before an answer: the mark, with or without the end of the message."""
    inside = (marks.answer.rfind(one) for one in special_texts(look.tokenizer) if one)
    return [marks.answer, *(marks.answer[at:] for at in inside if at > 0)]


def _is_cut_at_the_start(look: Look, document: Document) -> bool:
    arguments = getattr(look.trainer, "args", None)
    limit = getattr(arguments, "max_length", None)
    full = isinstance(limit, int) and len(document.ids) >= limit
    return full and getattr(arguments, "truncation_mode", "keep_start") != "keep_start"


def _apart(look: Look, document: Document, prompt: str) -> tuple[int, str] | None:
    """Return the first token that differs from the prompt, with a sentence; None if none does."""
    wanted = list(look.tokenizer(prompt, add_special_tokens=False)["input_ids"])
    ids = list(document.ids)
    bos = getattr(look.tokenizer, "bos_token_id", None)
    skipped = 1 if bos is not None and ids[:1] == [bos] and wanted[:1] != [bos] else 0
    ids = ids[skipped:]
    size = min(len(ids), len(wanted))
    if ids[:size] == wanted[:size]:
        return None
    if decoded(ids, look.tokenizer).whole.startswith(decoded(wanted, look.tokenizer).whole):
        return None  # Only the last token of the prompt merges with the answer.
    place = next(at for at in range(size) if ids[at] != wanted[at])
    ours, theirs = (
        repr(look.tokenizer.decode(one[place : place + AROUND])) for one in (ids, wanted)
    )
    return place + skipped, f"the row has {ours} where the chat template writes {theirs}"
