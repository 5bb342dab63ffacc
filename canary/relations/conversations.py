"""Turns of a conversation that the tokenizer's chat template shows in the ids of a row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
    special_texts,
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
    start: str = ""
    """What comes before all messages, such as BOS and a default message of the system."""


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
    user = _common_end(before, between, special_texts(tokenizer))
    start = before.removesuffix(user)
    user, answer, again = (_as_read(one, tokenizer) for one in (user, answer, again))
    # A template may write more before the last answer only, such as empty thoughts.
    mark = min(answer, again, key=len)
    alike = answer.startswith(mark) and again.startswith(mark)
    if not alike or user == mark or min(len(user), len(mark)) < LEAST_MARK:
        return None
    return Marks(user, mark, _as_read(start, tokenizer))


def _as_read(mark: str, tokenizer: Any) -> str:
    """Return a mark as decoded rows show it: some tokenizers drop spaces."""
    ids = tokenizer(mark, add_special_tokens=False)["input_ids"]
    again = decoded(ids, tokenizer).whole
    return mark if again == mark else again.strip()


def _common_end(one: str, other: str, whole: Sequence[str]) -> str:
    """Return the common end of two texts; it cuts none of the `whole` texts."""
    same = 0
    for ours, theirs in zip(reversed(one), reversed(other), strict=False):
        if ours != theirs:
            break
        same += 1
    begins = len(one) - same
    for text in whole:
        at = one.find(text, max(0, begins - len(text) + 1)) if text else -1
        if 0 <= at < begins:
            begins = at + len(text)
    return one[begins:]


@dataclass(frozen=True)
class Asked:
    """A document with its turns."""

    document: Document
    turns: tuple[Turn, ...]
    side: str = ""
    """The column of the answer; empty if the chat template showed the turns, or if several fit."""
    whole: bool = False
    """Whether the last answer is known to be whole."""
    is_known: bool = False
    """Whether a row of the dataset showed the turns."""

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
    documents = next_token_documents(look)
    is_sampled = samples(look) or len({one.raised > 0 for one in documents}) > 1
    for document in documents:
        rows: list[Matched] = []
        if look.tokenizer is not None and look.examples:
            rows = matched(document, look.examples, look.tokenizer)
        if rows:
            one = rows[0]
            sides = {other.side for other in rows}
            side = one.side if len(sides) == 1 else ""
            found.append(Asked(document, one.turns, side, one.whole, is_known=True))
        else:
            turns = found_turns(document, look.tokenizer) if look.tokenizer is not None else ()
            # A sampled text may hold marks by chance: only what comes first is prompt for sure.
            found.append(Asked(document, turns[:2] if is_sampled else turns))
    return found


def samples(look: Look) -> bool:
    """Whether the training trains on texts that were sampled."""
    arguments = getattr(look.trainer, "args", None)
    sampling = look.sampling
    return hasattr(arguments, "num_generations") or bool(sampling.sampled or sampling.expected)


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
