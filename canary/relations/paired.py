"""Which rows a pairwise loss compares, and which rows share a prompt."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from canary.relations.conversations import samples
from canary.relations.documents import Document
from canary.relations.relation import (
    CannotAsk,
    Look,
    Outcome,
    Relation,
    broken,
    holds,
    is_packed,
)

EQUAL = 1e-3
"""Relative; how far both amounts of a pair may differ by rounding."""
LEAST_PAIRS = 3
"""Prompts with two answers that must be known in the first update."""
LEAST_WRONG = 2
LEAST_PROMPT = 3
"""Tokens that a prompt has beyond what all rows begin with."""

Rows = Sequence[tuple[Document, float]]
"""Texts, and how much the loss raises each."""


@dataclass(frozen=True)
class Pair:
    """Two rows of one call that share a prompt."""

    first: Document
    second: Document
    amounts: tuple[float, float]
    is_compared: bool
    """Whether the loss raises the one as much as it lowers the other."""

    @property
    def words(self) -> str:
        """What is wrong with it."""
        rows = f"rows {self.first.row} and {self.second.row} share their prompt"
        if self.amounts[0] * self.amounts[1] > 0:
            return f"{rows}, and the loss {'raises' if self.amounts[0] > 0 else 'lowers'} both"
        return f"{rows}, but the loss compares each with the answer of another prompt"


def compared_pairs(look: Look, relation: Relation) -> Outcome:
    """Look whether a pairwise loss compares the two answers of each prompt.

    Raises:
        CannotAsk: the loss is not pairwise, or prompts have not two answers each.
    """
    if samples(look):
        raise CannotAsk("the answers are sampled")
    groups = list(_groups(look))
    scores = any(not one.scores_tokens for one in look.calls)
    if scores and any(map(_are_even, groups)):
        raise CannotAsk("all rows have equal amounts, as without any comparison")
    if not groups:
        raise CannotAsk("the loss raises and lowers no rows by equal amounts")
    shared = _same([document.ids for group in groups for document, _ in group])
    pairs = [
        _pair(group, one, other)
        for group in groups
        for one, other in _partners([document.ids for document, _ in group], shared)
    ]
    rows = sum(map(len, groups))
    # If all amounts are equal, other losses than pairwise ones may be even by chance.
    if any(map(_are_even, groups)) and len(pairs) * 4 < rows:
        raise CannotAsk("not each prompt has two answers")
    if len(pairs) < LEAST_PAIRS:
        raise CannotAsk("no two rows are known to share a prompt")
    wrong = [one for one in pairs if not one.is_compared]
    if len(wrong) < LEAST_WRONG:
        return holds(relation, f"the loss compares the two answers of each of {len(pairs)} prompts")
    words = f"{wrong[0].words} ({len(wrong)} of {len(pairs)} prompts)"
    return broken(relation, words, f"row {wrong[0].first.row}", wrong[0].amounts)


def _pair(group: Rows, one: int, other: int) -> Pair:
    amounts = (group[one][1], group[other][1])
    size = max(map(abs, amounts))
    return Pair(group[one][0], group[other][0], amounts, abs(sum(amounts)) <= EQUAL * size)


def _groups(look: Look) -> Iterator[Rows]:
    """Yield the rows of each call, or of two calls, whose loss is pairwise; nothing if one is not.

    A loss of sums raises all tokens of a row by the same amount, and one of means the whole row.
    """
    calls = [one for one in look.calls if not is_packed(one)]
    for amount in (_whole, _each):
        alone = [_rows(look.raised(call), amount) for call in calls]
        if alone and all(map(_is_pairwise, alone)):
            yield from alone
            return
        both = [[*one, *other] for one, other in [*pairwise(alone)][::2]]
        if len(alone) % 2 == 0 and both and all(map(_is_pairwise, both)):
            yield from both
            return


def _rows(raised: Rows, amount: Callable[[Document, float], float]) -> Rows:
    return [(document, amount(document, whole)) for document, whole in raised]


def _whole(document: Document, whole: float) -> float:
    return whole


def _each(document: Document, whole: float) -> float:
    """Return the weight that most trained tokens have."""
    used = [one for one, counts in zip(document.weights, document.trained, strict=True) if counts]
    known = [one for one in used if one is not None]
    return sorted(known)[len(known) // 2] if known else 0.0


def _is_pairwise(rows: Rows) -> bool:
    """Whether the rows are raised by the amounts by which others are lowered."""
    up = sorted(amount for _, amount in rows if amount > 0)
    down = sorted(-amount for _, amount in rows if amount < 0)
    alike = (abs(one - other) <= EQUAL * one for one, other in zip(up, down, strict=False))
    return len(up) == len(down) > 0 and all(alike)


def _are_even(rows: Rows) -> bool:
    """Whether all amounts are equal, as those of DPO are before the first update."""
    sizes = [abs(amount) for _, amount in rows]
    return max(sizes) - min(sizes) <= EQUAL * max(sizes)


def _partners(texts: Sequence[tuple[int, ...]], shared: int) -> list[tuple[int, int]]:
    """Return two rows each that begin alike for long, and with no other row half as long.

    Args:
        texts: the ids of the rows.
        shared: tokens that all rows begin with, such as those of a system prompt.
    """
    order = sorted(range(len(texts)), key=lambda row: texts[row])
    # A row begins like its neighbours in this order at least as long as like any other.
    alike = [0, *(_same([texts[one], texts[other]]) - shared for one, other in pairwise(order)), 0]
    found = []
    for place in range(1, len(order)):
        here, around = alike[place], max(alike[place - 1], alike[place + 1])
        if here >= LEAST_PROMPT and 2 * around <= here:
            one, other = sorted(order[place - 1 : place + 1])
            found.append((one, other))
    return sorted(found)


def _same(texts: Sequence[tuple[int, ...]]) -> int:
    """Return how many tokens all texts begin with."""
    first, last = min(texts), max(texts)
    at = 0
    while at < min(len(first), len(last)) and first[at] == last[at]:
        at += 1
    return at
