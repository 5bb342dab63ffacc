"""Which answer of a pair is preferred."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from canary.relations.documents import Document
from canary.relations.matching import matched
from canary.relations.paired import compared_pairs
from canary.relations.relation import CannotAsk, Look, Outcome, Relation, broken, holds

RELATION = Relation(
    "swap",
    "what is trained",
    "the gradient raises chosen and lowers rejected answers; swapping them reverses this",
    "the collator or the loss takes chosen for rejected, or mixes up the pairs",
    "https://arxiv.org/abs/2305.18290",
)
LEAST = 1e-6
"""Of the largest gradient; below, an answer is neither raised nor lowered."""
LOWERS_CHOSEN = ("apo_down", "discopop")
"""Losses of trl that may lower chosen answers on purpose."""

Raised = Sequence[tuple[Document, float]]
"""Texts, and how much the loss raises each."""


def ask(look: Look) -> Outcome:
    """Look which texts are raised, then swap both sides and look again.

    Without columns that say the sides, look whether the loss compares the answers of one prompt.
    """
    _refuse_other_losses(look)
    try:
        return _by_sides(look)
    except CannotAsk:
        if any(one.__module__.startswith("trl.") for one in type(look.trainer).__mro__):
            raise
        with contextlib.suppress(CannotAsk):
            return compared_pairs(look, RELATION)
        raise


def _by_sides(look: Look) -> Outcome:
    raised = [one for call in look.calls for one in look.raised(call)]
    sides = _sides(look, raised)
    for one, amount in raised:
        side = sides.get(one.ids)
        if side is not None and _sign(amount, raised) == (-1 if side == "chosen" else 1):
            word = "lowers" if side == "chosen" else "raises"
            return broken(RELATION, f"the loss {word} a {side} answer", f"row {one.row}")
    known = {one.ids: _sign(amount, raised) for one, amount in raised if one.ids in sides}
    counts = [
        sum(side == wanted and known[ids] != 0 for ids, side in sides.items() if ids in known)
        for wanted in ("chosen", "rejected")
    ]
    if not all(counts):
        raise CannotAsk("no chosen and rejected answers are known in the first update")
    words = f"{counts[0]} chosen answers are raised, {counts[1]} rejected ones lowered"
    swapped = look.swapped()
    if swapped is None:
        return holds(RELATION, words)
    for one, amount in swapped:
        if known.get(one.ids, 0) and _sign(amount, swapped) == known[one.ids]:
            what = f"swapped, the loss still {'raises' if amount > 0 else 'lowers'} an answer"
            return broken(RELATION, what, f"row {one.row}")
    return holds(RELATION, f"{words}; swapped, both turn")


def _refuse_other_losses(look: Look) -> None:
    arguments = getattr(look.trainer, "args", None)
    kinds = getattr(arguments, "loss_type", None)
    for kind in kinds if isinstance(kinds, list | tuple) else [kinds]:
        if kind in LOWERS_CHOSEN:
            raise CannotAsk(f"loss_type {kind} may lower chosen answers on purpose")
    smoothing = getattr(arguments, "label_smoothing", None)
    if isinstance(smoothing, float) and smoothing >= 0.5:
        raise CannotAsk("label_smoothing makes both answers equal")
    if getattr(arguments, "center_rewards_coefficient", None):
        raise CannotAsk("center_rewards_coefficient may lower a high reward")


def _sign(amount: float, among: Raised) -> int:
    least = LEAST * max((abs(one) for _, one in among), default=0.0)
    return 0 if abs(amount) <= least else 1 if amount > 0 else -1


def _sides(look: Look, raised: Raised) -> dict[tuple[int, ...], str]:
    """Return which texts are chosen and which rejected; without those that are both."""
    first = next(iter(look.examples), {})
    pairs = "chosen" in first and "rejected" in first
    if look.tokenizer is None or not (pairs or ("label" in first and "completion" in first)):
        raise CannotAsk("the data has no chosen and rejected answers")
    sides: dict[tuple[int, ...], str] = {}
    for one, _ in raised:
        found = {
            (row.side if pairs else ("chosen" if row.example["label"] else "rejected"))
            for row in matched(one, look.examples, look.tokenizer)
            if row.whole
        }
        if len(found) == 1 and found <= {"chosen", "rejected"}:
            sides[one.ids] = found.pop()
    return sides
