"""What tokenizers say: special ids, and the turns of a conversation in a row.

The marks of the chat template show which tokens are prompt and which are answer. What is not found
for sure is left out.
"""

from __future__ import annotations

import gc
import itertools
import sys
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

from canary.training.asking.look import CannotAsk, Look
from canary.training.asking.rows import Document

LEAST_MARK = 3
"""Characters of a mark that no text has by accident."""
NAMES = ("Zqxa", "Zqxb", "Zqxc", "Zqxd")
"""Stand for messages, in no template."""
UNKNOWN = "no chat template says what is prompt and what is answer"
Ids = tuple[int, ...]
Turn = tuple[int, int]
"""First token and end of a message."""


@dataclass(frozen=True)
class Conversation:
    """A document with its turns."""

    document: Document
    prompts: tuple[Turn, ...]
    answers: tuple[Turn, ...]

    def states(self, turns: Sequence[Turn]) -> Iterator[tuple[int, bool]]:
        """Yield the tokens of turns, and whether they are trained on, if that is known."""
        trained = self.document.trained
        for place in itertools.chain.from_iterable(range(*turn) for turn in turns):
            state = trained[place]
            if state is not None:
                yield place, state


def text_of(ids: Sequence[int], tokenizer: Any) -> str:
    """Return ids as text, with special tokens."""
    settings = {"skip_special_tokens": False, "clean_up_tokenization_spaces": False}
    return str(tokenizer.decode(list(ids), **settings))


def text_less(tokenizer: Any) -> frozenset[int]:
    """Return the ids that are no text: special tokens, and tokens that were added as such."""
    added = getattr(tokenizer, "added_tokens_decoder", None) or {}
    marked = {number for number, one in added.items() if getattr(one, "special", False)}
    return frozenset({*getattr(tokenizer, "all_special_ids", ()), *marked})


def special_texts(tokenizer: Any) -> list[str]:
    """Return the texts of special tokens, long ones first."""
    texts = (text_of([one], tokenizer) for one in text_less(tokenizer))
    return sorted(filter(None, texts), key=len, reverse=True)


def conversations(look: Look) -> list[Conversation]:
    """Return the documents of the first update that are trained on and have turns.

    Raises:
        CannotAsk: the loss is not a next-token loss, or no turns are known.
    """
    every = [one for call in look.known for one in look.documents(call) if any(one.trained)]
    if not every or not all(one.is_next_token for one in every):
        raise CannotAsk("the loss is not a next-token loss")
    marks = None if look.tokenizer is None else marks_of(look.tokenizer)
    if marks is None:
        raise CannotAsk(UNKNOWN)
    is_sampled = look.samples or len({one.raised > 0 for one in every}) > 1
    stops = look.eos_ids | text_less(look.tokenizer)
    user, answer = (_ids(one, look.tokenizer) for one in (marks.user, marks.answer))
    found = []
    for one in every:
        prompts, answers, begins = list[Turn](), list[Turn](), 0
        while (at := _find(one.ids, answer, begins)) >= 0:
            asked = _find(one.ids[:at], user, begins)
            prompts += [(asked + len(user), at)] if asked >= 0 else []
            first = at + len(answer)
            # An answer ends at the first special token.
            begins = next((x for x in range(first, len(one.ids)) if one.ids[x] in stops), 0)
            begins = begins or len(one.ids)
            answers += [(first, begins)] if begins > first else []
        # A sampled text may hold marks by chance: only what comes first is prompt for sure.
        shown = 1 if is_sampled else len(answers)
        if answers:
            found.append(Conversation(one, tuple(prompts[:shown]), tuple(answers[:shown])))
    if not found:
        raise CannotAsk(UNKNOWN)
    return found


def _ids(mark: str, tokenizer: Any) -> Ids:
    return tuple(tokenizer(mark, add_special_tokens=False)["input_ids"])


def _find(ids: Ids, mark: Ids, first: int) -> int:
    """Return where a mark begins, not before a place; -1 if it does not come."""
    places = (at for at in range(first, len(ids) - len(mark) + 1) if ids[at] == mark[0])
    return next((at for at in places if ids[at : at + len(mark)] == mark), -1)


@dataclass(frozen=True)
class Marks:
    """What a chat template writes between messages."""

    user: str
    """Before a message of the user."""
    answer: str
    """Between a message of the user and its answer."""
    start: str
    """What comes before all messages, such as BOS and a default message of the system."""


def marks_of(tokenizer: Any) -> Marks | None:
    """Return the marks of the tokenizer's chat template; None without clear ones."""
    if not getattr(tokenizer, "chat_template", None):
        return None
    roles = itertools.cycle(("user", "assistant"))
    messages = [{"role": role, "content": name} for role, name in zip(roles, NAMES, strict=False)]
    try:
        text = str(tokenizer.apply_chat_template(messages, tokenize=False))
        before, rest = text.split(NAMES[0])
        answer, rest = rest.split(NAMES[1])
        between, rest = rest.split(NAMES[2])
        again, _ = rest.split(NAMES[3])
    except Exception:  # noqa: BLE001 - a template may refuse any conversation
        return None
    # The common end of both; it cuts no special token.
    pairs = zip(reversed(before), reversed(between), strict=False)
    begins = len(before) - sum(1 for _ in itertools.takewhile(lambda x: x[0] == x[1], pairs))
    for mark in special_texts(tokenizer):
        at = before.find(mark, max(0, begins - len(mark) + 1))
        begins = at + len(mark) if 0 <= at < begins else begins
    user = before[begins:]
    # A template may write more before the last answer only, such as empty thoughts.
    mark = min(answer, again, key=len)
    alike = answer.startswith(mark) and again.startswith(mark)
    if not alike or user == mark or min(len(user), len(mark)) < LEAST_MARK:
        return None
    return Marks(user, mark, before[:begins])


class LivingTokenizers:
    """Tokenizers of transformers that live in the process.

    The count of live tensors hides older objects from the garbage collector while a training runs.
    So they are looked for at the beginning too.
    """

    def __init__(self) -> None:
        self._known = [weakref.ref(one) for one in _alive()]

    def only(self) -> Any:
        """Return the only tokenizer, or one of several that write the same; else None."""
        found = {id(one): one for known in self._known if (one := known()) is not None}
        found |= {id(one): one for one in _alive()}
        kinds = {_kind(one) for one in found.values()}
        return next(iter(found.values())) if len(kinds) == 1 else None


def special_ids(tokenizer: Any, model: Any) -> tuple[int | None, frozenset[int]]:
    """Return the ids of padding and of ends that a tokenizer, or else a model's configs, say."""
    known = (tokenizer, getattr(model, "config", None), getattr(model, "generation_config", None))
    pads = (pad for one in known for pad in _numbers(getattr(one, "pad_token_id", None)))
    ends = frozenset(end for one in known for end in _numbers(getattr(one, "eos_token_id", None)))
    return next(pads, None), ends


def _numbers(said: Any) -> list[int]:
    """Return the ids of one or several, as numbers of Python, numpy or torch."""
    said = said.tolist() if hasattr(said, "tolist") else said
    several = said if isinstance(said, list | tuple | set | frozenset) else [said]
    return [int(one) for one in several if isinstance(one, Integral)]


def _alive() -> list[Any]:
    base = getattr(sys.modules.get("transformers"), "PreTrainedTokenizerBase", None)
    if base is None:
        return []
    return [one for one in gc.get_objects() if base in type(one).__mro__]


def _kind(tokenizer: Any) -> tuple[object, ...]:
    """Return what decides which texts a tokenizer writes, and how it marks turns."""
    template = str(getattr(tokenizer, "chat_template", None))
    marks = tuple(getattr(tokenizer, "all_special_ids", ()))
    return type(tokenizer), len(tokenizer), template, marks
