"""Which tokens of a training row are prompt, and which are answer.

The rows of the trainer's dataset say it: their texts are searched in the decoded row. So it does
not matter how the row was tokenized. What is not found for sure is left out.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from canary.relations.documents import Document, Example
from canary.relations.relation import CannotAsk, Look, token_call

BLOCK, CONTEXT = 64, 8
"""Tokens that are decoded together, and those before them that settle their spaces."""
HIDDEN = "\x00"
"""Stands for each character of a special token: no text of a dataset is found there."""
TAIL = 24
"""Characters at the end of a cut row that must be in the answer."""
LEAST_REST = 2
"""Characters that are left of a cut answer, if they begin it right after the text before."""

Role = Literal["prompt", "answer", "other"]
"""Other: a message of somebody else within an answer of several turns."""
SIDES = ("completion", "chosen", "rejected")
"""Columns with an answer."""
ASKED = ("instruction", "input", "context", "question", "query", "problem", "prompt")
ANSWERED = ("output", "response", "answer", "completion", "solution", "target")
"""Columns of a question and its answer in data that trl does not know."""


@dataclass(frozen=True)
class Turn:
    """The text of a message, of a prompt or of an answer in a document."""

    role: Role
    first: int
    """Its first token; tokens that are only partly in the text do not count."""
    end: int


@dataclass(frozen=True)
class Matched:
    """A document with the row of the dataset that it was made from."""

    document: Document
    example: Example
    side: str
    """The column of the answer; `messages` for a whole conversation."""
    turns: tuple[Turn, ...]
    whole: bool
    """Whether the end of the last answer is in the document."""

    def of(self, role: Role) -> Iterator[Turn]:
        """Yield the turns of a role."""
        return (one for one in self.turns if one.role == role)


@dataclass
class Text:
    """A decoded document, and where its tokens end."""

    whole: str = ""
    plain: str = ""
    """The same length, with special tokens hidden."""
    ends: list[int] = field(default_factory=list)

    def tokens(self, first: int, end: int) -> tuple[int, int]:
        """Return the tokens that lie within two characters."""
        starts = [0, *self.ends]
        inside = [
            place
            for place, (begins, ends) in enumerate(itertools.pairwise(starts))
            if begins >= first and ends <= end and ends > begins
        ]
        return (inside[0], inside[-1] + 1) if inside else (0, 0)


def decoded(ids: Sequence[int], tokenizer: Any) -> Text:
    """Decode ids; each special token counts as hidden characters."""
    special = special_ids(tokenizer)
    found, total = Text(), 0
    for start in range(0, len(ids), BLOCK):
        before = max(0, start - CONTEXT)
        known = len(_plain(ids[before:start], tokenizer))
        block = ""
        for end in range(start + 1, min(start + BLOCK, len(ids)) + 1):
            block = _plain(ids[before:end], tokenizer)[known:]
            found.ends.append(max(total + len(block), found.ends[-1] if found.ends else 0))
        found.whole += block
        total = len(found.whole)
    letters = list(found.whole)
    for place, one in enumerate(ids):
        if one in special:
            first, end = (found.ends[place - 1] if place else 0), found.ends[place]
            letters[first:end] = HIDDEN * (end - first)
    found.plain = "".join(letters)
    return found


def _plain(ids: Sequence[int], tokenizer: Any) -> str:
    return str(
        tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False)
    )


def special_ids(tokenizer: Any) -> frozenset[int]:
    """Return the ids that are no text: special tokens, and tokens that were added as such."""
    added = getattr(tokenizer, "added_tokens_decoder", None) or {}
    marked = {number for number, one in added.items() if getattr(one, "special", False)}
    return frozenset({*getattr(tokenizer, "all_special_ids", ()), *marked})


def next_token_documents(look: Look) -> list[Document]:
    """Return the documents of the first update that are trained on.

    Raises:
        CannotAsk: the model has no token logits, or its loss is not a next-token loss.
    """
    token_call(look)
    found = [
        one
        for call in look.calls
        if call.ids is not None and call.scores_tokens
        for one in look.documents(call)
        if any(one.trained)
    ]
    if not found or not all(one.is_next_token for one in found):
        raise CannotAsk("the loss is not a next-token loss")
    return found


def variants(example: Example) -> Iterator[tuple[str, list[tuple[Role, str]]]]:
    """Yield the texts of a row of a dataset, by the column of its answer."""
    messages = _texts(example.get("messages"))
    if messages and any(role == "answer" for role, _ in messages):
        yield "messages", messages
    prompt = example.get("prompt")
    for side in SIDES:
        answer = _without(prompt, example.get(side))
        if isinstance(prompt, str) and isinstance(answer, str):
            yield side, [("prompt", prompt), ("answer", answer)]
        elif isinstance(answer, list) and (isinstance(prompt, list) or side != "completion"):
            before: list[tuple[Role, str]] = [("prompt", text) for _, text in _texts(prompt)]
            after = _texts(answer)
            if after and (before or not prompt):
                yield side, [*before, *((_within(role), text) for role, text in after)]
        elif prompt is None and isinstance(answer, str) and side != "completion":
            yield side, [("answer", answer)]
    if not messages and not any(side in example for side in SIDES):
        yield from _other_names(example)


def _other_names(example: Example) -> Iterator[tuple[str, list[tuple[Role, str]]]]:
    """Yield the texts of a row whose columns have other names, in both orders of its questions."""
    texts = {name: one for name, one in example.items() if isinstance(one, str) and one.strip()}
    asked: list[tuple[Role, str]] = [("prompt", texts[name]) for name in texts if name in ASKED]
    answer = next((texts[name] for name in ANSWERED if name in texts), None)
    if asked and answer is not None:
        yield "completion", [*asked, ("answer", answer)]
        if len(asked) > 1:
            yield "completion", [*reversed(asked), ("answer", answer)]


def _without(prompt: Any, answer: Any) -> Any:
    """Return an answer without the prompt: some trainers put it into the same column."""
    if not prompt or type(prompt) is not type(answer) or answer[: len(prompt)] != prompt:
        return answer
    return answer[len(prompt) :]


def _within(role: Role) -> Role:
    return "answer" if role == "answer" else "other"


def _texts(messages: Any) -> list[tuple[Role, str]]:
    """Return the messages; nothing if one is no plain text."""
    found: list[tuple[Role, str]] = []
    for one in messages if isinstance(messages, list) else ():
        if not isinstance(one, Mapping) or not isinstance(one.get("content"), str):
            return []
        found.append(("answer" if one.get("role") == "assistant" else "prompt", one["content"]))
    return found


def matched(document: Document, examples: Sequence[Example], tokenizer: Any) -> list[Matched]:
    """Return the rows of the dataset that explain most of a document; several are equally good."""
    text = decoded(document.ids, tokenizer)
    marks = special_texts(tokenizer)
    best: list[Matched] = []
    most = 0
    for example in examples:
        for side, texts in variants(example):
            # Some trainers render rows before they tokenize them.
            found = _placed(text.plain, [(role, _hidden(one, marks)) for role, one in texts])
            if found is None:
                continue
            places, whole = found
            size = sum(end - first for _, first, end in places)
            if size < max(most, 1):
                continue
            turns = tuple(Turn(role, *text.tokens(first, end)) for role, first, end in places)
            best = best if size == most else []
            best.append(Matched(document, example, side, turns, whole))
            most = size
    return best


Place = tuple[Role, int, int]


def special_texts(tokenizer: Any) -> list[str]:
    """Return the texts of special tokens, long ones first."""
    ids = sorted(special_ids(tokenizer))
    return sorted((_plain([one], tokenizer) for one in ids), key=len, reverse=True)


def _hidden(text: str, marks: Sequence[str]) -> str:
    """Return a text whose special tokens are hidden, as those of a decoded row are."""
    for one in marks:
        if one and one in text:
            text = text.replace(one, HIDDEN * len(one))
    return text


def _placed(plain: str, texts: Sequence[tuple[Role, str]]) -> tuple[list[Place], bool] | None:
    """Return where texts stand, in their order, and whether the last one is whole."""
    places: list[Place] = []
    begins, whole = 0, True
    for number, (role, text) in enumerate(texts):
        wanted = text.strip(HIDDEN + " \n\t")
        if not wanted:
            continue
        last = number == len(texts) - 1
        at = plain.rfind(wanted, begins) if last else plain.find(wanted, begins)
        if at < 0:
            cut = _cut_at(plain, begins, wanted) if last and places else None
            if cut is None:
                return None
            places.append((role, *cut))
            whole = False
            continue
        places.append((role, at, at + len(wanted)))
        begins = at + len(wanted)
    return (places, whole) if places and _is_sure(plain, places) else None


def _cut_at(plain: str, begins: int, wanted: str) -> tuple[int, int] | None:
    """Return where the beginning of a text stands that was cut at the end of the row."""
    end = len(plain.rstrip(HIDDEN + " \n"))
    rest = plain[begins:end].lstrip(HIDDEN + " \n\t")
    if len(rest) >= LEAST_REST and wanted.startswith(rest):
        return end - len(rest), end
    tail = plain[max(begins, end - TAIL) : end]
    if len(tail) < TAIL or tail not in wanted:
        return None
    length = wanted.index(tail) + len(tail)
    return (end - length, end) if end - length >= begins else None


def _is_sure(plain: str, places: Sequence[Place]) -> bool:
    """Whether no text stands between the places that could be taken for one of them."""
    gaps = [
        plain[before:after]
        for before, after in itertools.pairwise(
            [0, *(edge for _, first, end in places for edge in (first, end)), len(plain)]
        )
    ][::2]
    return not any(
        plain[first:end] in gap
        for number, (_, first, end) in enumerate(places)
        for gap in gaps[number : number + 2]
    )
