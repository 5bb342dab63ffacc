"""Turns of a conversation that the tokenizer's chat template shows in the ids of a row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from canary.relations.documents import Document
from canary.relations.matching import (
    HIDDEN,
    Matched,
    Role,
    Turn,
    decoded,
    matched,
    next_token_documents,
)
from canary.relations.relation import Look

NAMES = ("Zqxa", "Zqxb", "Zqxc", "Zqxd")
"""Stand for messages, in no template."""
LEAST_MARK = 3
"""Characters of a mark that no text has by accident."""


@dataclass(frozen=True)
class Marks:
    """What the template writes between messages."""

    user: str
    """Before a message of the user."""
    answer: str
    """Between a message of the user and its answer."""


def marks_of(tokenizer: Any) -> Marks | None:
    """Return the marks of the tokenizer's chat template; None without clear ones."""
    if not getattr(tokenizer, "chat_template", None):
        return None
    try:
        return _marks(tokenizer)
    except Exception:  # noqa: BLE001 - a template may refuse any conversation
        return None


def _marks(tokenizer: Any) -> Marks | None:
    roles = ("user", "assistant", "user", "assistant")
    messages = [{"role": role, "content": name} for role, name in zip(roles, NAMES, strict=True)]
    text = str(tokenizer.apply_chat_template(messages, tokenize=False))
    before, rest = text.split(NAMES[0])
    answer, rest = rest.split(NAMES[1])
    between, rest = rest.split(NAMES[2])
    again, _ = rest.split(NAMES[3])
    user = _common_end(before, between)
    if answer != again or user == answer or min(len(user), len(answer)) < LEAST_MARK:
        return None
    return Marks(user, answer)


def _common_end(one: str, other: str) -> str:
    same = 0
    for ours, theirs in zip(reversed(one), reversed(other), strict=False):
        if ours != theirs:
            break
        same += 1
    return one[len(one) - same :]


@dataclass(frozen=True)
class Asked:
    """A document with its turns."""

    document: Document
    turns: tuple[Turn, ...]
    side: str = ""
    """The column of the answer; empty if the chat template showed the turns."""
    whole: bool = False
    """Whether the last answer is known to be whole."""

    def of(self, role: Role) -> list[Turn]:
        """Return the turns of a role that have tokens."""
        return [one for one in self.turns if one.role == role and one.end > one.first]

    def places(self, role: Role) -> Iterator[int]:
        """Yield the tokens of a role of which it is known whether they are trained on."""
        for turn in self.of(role):
            for place in range(turn.first, turn.end):
                if self.document.weights[place] is not None:
                    yield place


def asked(look: Look) -> list[Asked]:
    """Return the documents of the first update that are trained on, with turns if they are known.

    Raises:
        CannotAsk: the model has no token logits, or its loss is not a next-token loss.
    """
    found = []
    for document in next_token_documents(look):
        rows: list[Matched] = []
        if look.tokenizer is not None and look.examples:
            rows = matched(document, look.examples, look.tokenizer)
        if rows:
            one = rows[0]
            found.append(Asked(document, one.turns, one.side, one.whole))
        else:
            turns = found_turns(document, look.tokenizer) if look.tokenizer is not None else ()
            found.append(Asked(document, turns))
    return found


def found_turns(document: Document, tokenizer: Any) -> tuple[Turn, ...]:
    """Return the turns of users and of answers in a document; none without a chat template."""
    marks = marks_of(tokenizer)
    if marks is None:
        return ()
    text = decoded(document.ids, tokenizer)
    turns: list[Turn] = []
    begins = 0
    while (at := text.whole.find(marks.answer, begins)) >= 0:
        user = text.whole.rfind(marks.user, begins, at)
        if user >= 0:
            turns.append(Turn("prompt", *text.tokens(user + len(marks.user), at)))
        first = at + len(marks.answer)
        # An answer ends at the first special token.
        end = text.plain.find(HIDDEN, first)
        begins = end if end >= 0 else len(text.plain)
        turns.append(Turn("answer", *text.tokens(first, begins)))
    return tuple(turns)
