"""Questions about prompts, answers and chat templates, read from the first update.

The marks of the tokenizer's chat template show which tokens are prompt and which are answer. What
is not found for sure is left out.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from canary.record.exact import Asked
from canary.training.asking.look import CannotAsk, Document, Look, broken, holds

ANSWERS = 0.95
"""Share of the answers' tokens that must be trained, before a mask counts as one of prompts."""
WORD_START, WORD_END = re.compile(r"[^\W\d_]+"), re.compile(r"[^\W\d_]+$")
LEAST_CUT, MOST_CUT = 4, 0.5
"""Answers, and their share, that may be cut by chance in one update."""
LEAST_MARK = 3
"""Characters of a mark that no text has by accident."""
NAMES = ("Zqxa", "Zqxb", "Zqxc", "Zqxd")
"""Stand for messages, in no template."""
UNKNOWN = "no chat template says what is prompt and what is answer"
Ids = tuple[int, ...]
Turn = tuple[int, int]
"""First token and end of a message."""


def prompt_labels(look: Look) -> Asked:
    """Look for trained tokens of prompts."""
    kinds = [x.__name__ for x in type(look.trainer).__mro__ if x.__module__.startswith("trl.")]
    masks, found, of = _masks(look, kinds), conversations(look), ""
    if "ORPOTrainer" in kinds:
        # The likelihood of chosen answers covers the prompt on purpose.
        found = [one for one in found if one.document.raised < 0]
        of = " of rejected answers"
    prompts = [(one, at, state) for one in found for at, state in one.states(one.prompts)]
    trained = [(one, at) for one, at, state in prompts if state]
    if not trained:
        return holds(f"none of {len(prompts)} prompt tokens{of} is trained on")
    if not masks:
        if len(trained) == len(prompts):
            raise CannotAsk("only for trainings that leave prompts out of the loss")
        answers = [state for one in found for _, state in one.states(one.answers)]
        if sum(answers) < ANSWERS * len(answers):
            raise CannotAsk("only some tokens of prompts and answers are trained on")
    words = f"{len(trained)} of {len(prompts)} prompt tokens{of} are trained on"
    return broken(words, trained[0][0].document.place(trained[0][1]))


def _masks(look: Look, kinds: list[str]) -> bool:
    """Whether the trainer's settings leave prompts out of the loss.

    Raises:
        CannotAsk: they train on prompts on purpose.
    """
    if "SFTTrainer" in kinds and look.setting("completion_only_loss") is False:
        raise CannotAsk("only for trainings that leave prompts out of the loss")
    if not any(one.endswith("Trainer") for one in kinds):
        return False
    if "messages" in look.columns:
        return bool(look.setting("assistant_only_loss"))
    if "SFTTrainer" in kinds:
        return hasattr(look.trainer.args, "completion_only_loss") and "completion" in look.columns
    return bool({"chosen", "label"} & look.columns)


def assistant_mask(look: Look) -> Asked:
    """Look for masks of answers that begin within a word before it."""
    if look.setting("ld_alpha") is not None or look.samples:
        raise CannotAsk("the loss weighs the tokens of an answer on purpose")
    found, count = conversations(look), 0
    others = [state for one in found for _, state in one.states(one.prompts)]
    if others and all(others):
        raise CannotAsk("only for trainings that leave prompts out of the loss")
    for one in found:
        for turn in one.answers:
            # An answer that is not trained on, or in part, is a choice.
            if all(one.document.trained[slice(*turn)]):
                count += 1
                inside = _within_a_word(look, one, turn)
                if inside is not None:
                    words = f"the mask of an answer begins within the word {inside[1]!r} before it"
                    return broken(words, one.document.place(inside[0]))
    if not count:
        raise CannotAsk("no answer is trained on as a whole")
    return holds(f"the mask of none of {count} answers begins within a word")


def _within_a_word(look: Look, one: Conversation, turn: Turn) -> tuple[int, str] | None:
    """Return the first trained token before an answer and the word that it cuts; None if it cuts
    none: all of the answer's header may be trained on, or a part of it on purpose."""
    trained, ids, begins = one.document.trained, one.document.ids, turn[0]
    while begins and trained[begins - 1]:
        begins -= 1
    special = text_less(look.tokenizer)
    if begins in (0, turn[0]) or {*ids[begins - 1 : turn[0]]} & special:
        return None
    whole, text = (text_of(ids[:end], look.tokenizer) for end in (turn[0], begins))
    before, after = WORD_END.search(text), WORD_START.match(whole.removeprefix(text))
    cuts = before is not None and after is not None and whole.startswith(text)
    return (begins, before[0] + after[0]) if cuts else None  # type: ignore[index]


def eos_labels(look: Look) -> Asked:
    """Look for answers that `max_length` cuts."""
    if look.samples or ("prompt" in look.columns and not {"completion", "chosen"} & look.columns):
        raise CannotAsk("only for answers that are given")
    limit = look.setting("max_length")
    # Blocks of packed rows end anywhere.
    packs = look.setting("packing") or any(map(look.is_packed, look.known))
    if not isinstance(limit, int) or packs:
        raise CannotAsk("only for rows that max_length may cut")
    found, ends = conversations(look), look.eos_ids | text_less(look.tokenizer)
    full = [one.document for one in found if len(one.document.ids) >= limit]
    cut = [one for one in full if one.ids[-1] not in ends]
    words = f"{len(cut)} of {len(found)} answers fill max_length and have no EOS"
    if len(cut) < LEAST_CUT or len(cut) <= MOST_CUT * len(found):
        return holds(words)
    place = cut[0].place(len(cut[0].ids) - 1)
    return broken(f"{words}: the model hardly learns to stop", place)


QUESTIONS: dict[str, Callable[[Look], Asked]] = {
    one.__name__: one for one in (prompt_labels, assistant_mask, eos_labels)
}
"""By the ids of their rules."""


# Turns.


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


def conversations(look: Look) -> list[Conversation]:
    """Return the documents of the first update that are trained on and have turns.

    Raises:
        CannotAsk: the loss is not a next-token loss, or no turns are known.
    """
    every = [one for call in look.known for one in look.documents(call) if any(one.trained)]
    if not every or not all(one.is_next_token for one in every):
        raise CannotAsk("the loss is not a next-token loss")
    marks = marks_of(look.tokenizer)
    if marks is None:
        raise CannotAsk(UNKNOWN)
    is_sampled = look.samples or len({one.raised > 0 for one in every}) > 1
    stops = look.eos_ids | text_less(look.tokenizer)
    both = [look.tokenizer(x, add_special_tokens=False) for x in (marks.user, marks.answer)]
    user, answer = (tuple(one["input_ids"]) for one in both)
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
    special = (text_of([one], tokenizer) for one in text_less(tokenizer))
    for mark in sorted(filter(None, special), key=len, reverse=True):
        at = before.find(mark, max(0, begins - len(mark) + 1))
        begins = at + len(mark) if 0 <= at < begins else begins
    user = before[begins:]
    # A template may write more before the last answer only, such as empty thoughts.
    mark = min(answer, again, key=len)
    alike = answer.startswith(mark) and again.startswith(mark)
    if not alike or user == mark or min(len(user), len(mark)) < LEAST_MARK:
        return None
    return Marks(user, mark)
