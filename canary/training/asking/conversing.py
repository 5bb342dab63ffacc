"""Questions about prompts, answers and chat templates, read from the first update."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from canary.record.exact import Asked
from canary.training.asking.look import CannotAsk, Look, broken, holds
from canary.training.asking.rows import Document
from canary.training.asking.texts import (
    LEAST_MARK,
    Conversation,
    Turn,
    conversations,
    marks_of,
    special_texts,
    text_less,
    text_of,
)

ANSWERS = 0.95
"""Share of the answers' tokens that must be trained, before a mask counts as one of prompts."""
THINKING = "</think>"
"""A template or a training may leave out what comes before it on purpose."""
WORD_START, WORD_END = re.compile(r"[^\W\d_]+"), re.compile(r"[^\W\d_]+$")
LEAST_CUT, MOST_CUT = 4, 0.5
"""Answers, and their share, that may be cut by chance in one update."""
SHOWN = 40
"""Characters of the start of a conversation that a message shows."""


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
            raise CannotAsk("all tokens are trained on, as in plain language modelling")
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
        raise CannotAsk("completion_only_loss is false: prompts are trained on, on purpose")
    if not any(one.endswith("Trainer") for one in kinds):
        return False
    if "messages" in look.columns:
        return bool(look.setting("assistant_only_loss"))
    if "SFTTrainer" in kinds:
        return hasattr(look.trainer.args, "completion_only_loss") and "completion" in look.columns
    return bool({"chosen", "label"} & look.columns)


def assistant_mask(look: Look) -> Asked:
    """Look for answers that are trained on in part, and for masks that begin within a word."""
    if look.setting("ld_alpha") is not None or look.samples:
        raise CannotAsk("the loss weighs the tokens of an answer on purpose")
    found = conversations(look)
    others = [state for one in found for _, state in one.states(one.prompts)]
    if others and all(others):
        raise CannotAsk("all tokens are trained on: there is no mask")
    every, count = bool(look.setting("assistant_only_loss")), 0
    for one in found:
        for turn in one.answers:
            lost = _lost(one, turn)
            if lost is None:
                continue
            count += 1
            if lost and (every or len(lost) < turn[1] - turn[0]):
                return _partly(look, one, turn, lost)
            inside = None if lost else _within_a_word(look, one, turn)
            if inside is not None:
                words = f"the mask of an answer begins within the word {inside[1]!r} before it"
                return broken(words, one.document.place(inside[0]))
    if not count:
        raise CannotAsk("no answer is trained on")
    return holds(f"each of {count} answers is trained on completely or not at all")


def _lost(one: Conversation, turn: Turn) -> list[int] | None:
    """Return the tokens of an answer that are not trained on; None if they are scattered."""
    trained = one.document.trained[slice(*turn)]
    changes = sum(now != then for now, then in zip(trained[1:], trained, strict=False))
    # A loss that chooses single tokens does so on purpose.
    if changes > 1 or any(state is None for state in trained):
        return None
    return [turn[0] + at for at, state in enumerate(trained) if not state]


def _within_a_word(look: Look, one: Conversation, turn: Turn) -> tuple[int, str] | None:
    """Return the first trained token before an answer and the word that it cuts; None if it cuts
    none: all of the answer's header may be trained on, or a part of it on purpose."""
    trained, ids, begins = one.document.trained, one.document.ids, turn[0]
    while begins and trained[begins - 1]:
        begins -= 1
    special = text_less(look.tokenizer)
    if begins in (0, turn[0]) or {*ids[begins - 1 : turn[0]]} & special:
        return None
    whole, text = (text_of(ids[: turn[0]], look.tokenizer), text_of(ids[:begins], look.tokenizer))
    before, after = WORD_END.search(text), WORD_START.match(whole.removeprefix(text))
    cuts = before is not None and after is not None and whole.startswith(text)
    return (begins, before[0] + after[0]) if cuts else None  # type: ignore[index]


def _partly(look: Look, one: Conversation, turn: Turn, lost: list[int]) -> Asked:
    size = turn[1] - turn[0]
    if THINKING in str(look.tokenizer.decode(list(one.document.ids[lost[0] : lost[-1] + 1]))):
        raise CannotAsk("thinking is left out of the loss")
    side = "first" if lost[0] == turn[0] else "last"
    words = f"the {side} {len(lost)} of {size} tokens of an answer are not trained on"
    if len(lost) == size:
        words = f"an answer of {size} tokens is not trained on, although others are"
    return broken(words, one.document.place(lost[0]))


def eos_labels(look: Look) -> Asked:
    """Look at the token after each trained answer."""
    if look.samples or ("prompt" in look.columns and not {"completion", "chosen"} & look.columns):
        raise CannotAsk("completions may be cut before EOS")
    try:
        found = conversations(look)
    except CannotAsk:
        found = []
    cut = _cut(look, found)
    if cut:
        words = f"{len(cut)} of {len(found)} answers fill max_length and have no EOS: the model "
        return broken(f"{words}hardly learns to stop", cut[0].place(len(cut[0].ids) - 1))
    plain = [one for call in look.known for one in look.documents(call)]
    ends = [end for one in found for end in _ends(one)] or [*_of_texts(look, plain)]
    known = [(one, at) for one, at in ends if one.trained[at] is not None]
    lost = [(one, at) for one, at in known if not one.trained[at]]
    if not known:
        # Without EOS in any answer, the record says whether one is known at all.
        raise CannotAsk("no answer is known to end with EOS")
    if not lost:
        return holds(f"all {len(known)} answers have their EOS among the labels")
    words = f"{len(lost)} of {len(known)} answers have an EOS that is not among the labels"
    return broken(words, lost[0][0].place(lost[0][1]))


def _ends(one: Conversation) -> Iterator[tuple[Document, int]]:
    """Yield the token that ends each trained answer, if there is one."""
    document = one.document
    for _, end in one.answers:
        if end < len(document.ids) and document.trained[end - 1]:
            yield document, end


def _of_texts(look: Look, documents: list[Document]) -> Iterator[tuple[Document, int]]:
    """Yield the EOS at the end of texts whose turns are not known."""
    for one in documents:
        last = len(one.ids) - 1
        is_end = last > 0 and one.ids[last] in look.eos_ids and one.is_end_known
        if is_end and one.is_next_token and one.trained[last - 1]:
            yield one, last


def _cut(look: Look, found: list[Conversation]) -> list[Document]:
    """Return the answers that `max_length` cuts, if those are most. Blocks of packed rows end
    anywhere."""
    limit = look.setting("max_length")
    packs = look.setting("packing") or any(map(look.is_packed, look.known))
    if not isinstance(limit, int) or packs:
        return []
    ends = look.eos_ids | text_less(look.tokenizer)
    full = [one.document for one in found if len(one.document.ids) >= limit]
    cut = [one for one in full if one.ids[-1] not in ends]
    return cut if len(cut) >= LEAST_CUT and len(cut) > MOST_CUT * len(found) else []


def chat_template(look: Look) -> Asked:
    """Look for an answer that follows on what the template writes only at the start of a
    conversation: the row was rendered in parts that each begin anew."""
    marks = None if look.tokenizer is None else marks_of(look.tokenizer)
    if marks is None or len(marks.start.strip()) < LEAST_MARK:
        raise CannotAsk("the tokenizer has no chat template with a start of its own")
    # What may stand before an answer: the mark, with or without the end of the message.
    inside = (marks.answer.rfind(one) for one in special_texts(look.tokenizer))
    headers = [marks.answer, *(marks.answer[at:] for at in inside if at > 0)]
    count = 0
    for document in (one for call in look.known for one in look.documents(call)):
        text = text_of(document.ids, look.tokenizer)
        first = text.find(marks.start + marks.user)
        count += first >= 0
        if first >= 0 and any(marks.start + one in text[first:] for one in headers):
            words = f"{marks.start[:SHOWN]!r}, which begins a conversation, comes again between a "
            return broken(f"{words}message of the user and its answer", f"row {document.row}")
    if not count:
        raise CannotAsk("no row begins as the chat template does")
    return holds(f"{count} conversations begin once")


QUESTIONS: dict[str, Callable[[Look], Asked]] = {
    one.__name__: one for one in (prompt_labels, assistant_mask, eos_labels, chat_template)
}
"""By the ids of their rules."""
