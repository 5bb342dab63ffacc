"""The mask of answers."""

from __future__ import annotations

import re

from canary.relations.conversations import Asked, asked, samples
from canary.relations.matching import Turn, decoded, special_ids
from canary.relations.relation import CannotAsk, Look, Outcome, Relation, broken, holds

RELATION = Relation(
    "assistant_mask",
    "what is trained",
    "a mask of answers covers each answer from its first token to its last",
    "the mask was computed on other tokens than the row has, or for one turn only",
    "https://github.com/huggingface/transformers/issues/34172",
)
THINKING = "</think>"
"""A template or a training may leave out what comes before it on purpose."""

WORD_START, WORD_END = re.compile(r"[^\W\d_]+"), re.compile(r"[^\W\d_]+$")


def ask(look: Look) -> Outcome:
    """Look for answers that are trained on in part."""
    arguments = getattr(look.trainer, "args", None)
    if getattr(arguments, "ld_alpha", None) is not None:
        raise CannotAsk("ld_alpha weighs the end of an answer less on purpose")
    if samples(look):
        raise CannotAsk("completions are sampled, and a loss may choose among their tokens")
    found = [one for one in asked(look) if one.of("answer")]
    if not found:
        raise CannotAsk("the data does not say what is prompt and what is answer")
    others = [one.document.trained[place] for one in found for place in one.places("prompt")]
    if others and all(others):
        raise CannotAsk("all tokens are trained on: there is no mask")
    every = bool(getattr(arguments, "assistant_only_loss", False))
    count = 0
    for one in found:
        for turn in one.of("answer"):
            lost = _lost(one, turn)
            if lost is None:
                continue
            count += 1
            if lost and (every or len(lost) < turn.end - turn.first):
                return _broken(look, one, turn, lost)
            inside = None if lost else _within_a_word(look, one, turn)
            if inside is not None:
                place, word = inside
                words = f"the mask of an answer begins within the word {word!r} before it"
                return broken(RELATION, words, f"row {one.document.row}, token {place}")
    if not count:
        raise CannotAsk("no answer is trained on")
    return holds(RELATION, f"each of {count} answers is trained on completely or not at all")


def _lost(one: Asked, turn: Turn) -> list[int] | None:
    """Return the tokens of an answer that are not trained on; None if they are scattered."""
    trained = one.document.trained[turn.first : turn.end]
    if any(state is None for state in trained):
        return None
    lost = [turn.first + at for at, state in enumerate(trained) if not state]
    changes = sum(now != then for now, then in zip(trained[1:], trained, strict=False))
    # A loss that chooses single tokens does so on purpose.
    return None if changes > 1 else lost


def _within_a_word(look: Look, one: Asked, turn: Turn) -> tuple[int, str] | None:
    """Return the first trained token before an answer and the word that it cuts; None if it cuts
    none: all of the answer's header may be trained on, or a part of it on purpose."""
    trained, ids = one.document.trained, one.document.ids
    begins = turn.first
    while begins and trained[begins - 1]:
        begins -= 1
    special = special_ids(look.tokenizer)
    if begins in (0, turn.first) or {*ids[begins - 1 : turn.first]} & special:
        return None
    header = begins
    while header and ids[header - 1] not in special:
        header -= 1
    text = decoded(ids[header : turn.first], look.tokenizer)
    at = text.ends[begins - header - 1]
    before, after = WORD_END.search(text.whole[:at]), WORD_START.match(text.whole[at:])
    if before is None or after is None:
        return None
    return one.document.first + begins, before[0] + after[0]


def _broken(look: Look, one: Asked, turn: Turn, lost: list[int]) -> Outcome:
    size = turn.end - turn.first
    text = str(look.tokenizer.decode(list(one.document.ids[lost[0] : lost[-1] + 1])))
    if THINKING in text:
        raise CannotAsk("thinking is left out of the loss")
    if one.document.trained[turn.first : turn.end].count(True) == 0:
        words = f"an answer of {size} tokens is not trained on, although others are"
    else:
        side = "first" if lost[0] == turn.first else "last"
        words = f"the {side} {len(lost)} of {size} tokens of an answer are not trained on"
    place = f"row {one.document.row}, token {one.document.first + lost[0]}"
    return broken(RELATION, words, place, (size - len(lost), size))
