"""Ends of rows that are left over from an earlier batch, as of a collator that reuses a buffer.

Such a buffer is simulated: for each row and column, the newest token that an earlier call had.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

LEAST = 8
"""Tokens of an end that is left over."""
SURE = 16
"""So many tokens are enough in one row, and needed where no token ends the texts."""
DISTINCT = 4
"""Different tokens that it has at least."""
ENDS = 0.5
"""Share of padded rows that must end with the same token, before it counts as the end of texts."""
MOST_COMPARED = 64
"""Tokens of an end that are looked for in other rows."""
MOST_CALLS = 64
MOST_TOKENS = 1 << 20

Span = tuple[int, int]
Line = Sequence[int]


@dataclass(frozen=True)
class Leftover:
    """A row whose end is that of the row that was there before."""

    call: int
    """From 0, in the order of the training."""
    row: int
    first: int
    """Its first column that is left over."""
    size: int
    before: int
    """The token before it: the last one of the row's own text."""


@dataclass
class Buffer:
    """What a reused buffer would hold, call after call."""

    found: list[Leftover] = field(default_factory=list)
    cleared: int = 0
    """Calls that have padding where a reused buffer would hold text."""
    _text: dict[tuple[int, int], int] = field(default_factory=dict)
    """The newest text by row and column."""
    _ends: Counter[int] = field(default_factory=Counter)
    """The last tokens of padded rows."""
    _last: list[Line] = field(default_factory=list)
    """The rows of the last call."""
    _calls: int = 0
    _tokens: int = 0

    @property
    def is_full(self) -> bool:
        """Whether no more calls are looked at."""
        return self._calls >= MOST_CALLS or self._tokens > MOST_TOKENS

    def left_over(self) -> list[Leftover]:
        """Return the ends that are left over, the longest first; none if no reused buffer explains
        the rows."""
        end = self._end()
        found = [
            one for one in self.found if (one.size >= SURE if end is None else one.before == end)
        ]
        found.sort(key=lambda one: -one.size)
        calls = {one.call for one in found}
        enough = len(found) > 1 or (end is not None and found and found[0].size >= SURE)
        return found if enough and self.cleared <= len(calls) else []

    def _end(self) -> int | None:
        """Return the token that ends most texts; None without one."""
        token, count = max(self._ends.items(), key=lambda one: one[1], default=(0, 0))
        return token if count > ENDS * sum(self._ends.values()) else None

    def add(self, rows: Sequence[Line], spans: Sequence[Span]) -> None:
        """Add a call. `spans`: (first, end) of the text in each row."""
        self._tokens += sum(map(len, rows))
        if self.is_full:
            return
        if self._is_cleared(rows, spans):
            self.cleared += 1
            self._text = {}
        elif not _pads_left(rows, spans):
            self.found += self._left_over(rows, spans)
        for row, (line, (first, end)) in enumerate(zip(rows, spans, strict=True)):
            for column in range(first, end):
                self._text[row, column] = line[column]
            if first < end < len(line):
                self._ends[line[end - 1]] += 1
        self._last = [line[first:end] for line, (first, end) in zip(rows, spans, strict=True)]
        self._calls += 1

    def _is_cleared(self, rows: Sequence[Line], spans: Sequence[Span]) -> bool:
        """Whether a row has padding after its text where an earlier one had text."""
        return any(
            (row, column) in self._text and line[column] != self._text[row, column]
            for row, (line, (_, end)) in enumerate(zip(rows, spans, strict=True))
            for column in range(end, len(line))
        )

    def _left_over(self, rows: Sequence[Line], spans: Sequence[Span]) -> list[Leftover]:
        texts = [tuple(line[first:end]) for line, (first, end) in zip(rows, spans, strict=True)]
        found = []
        for row, (line, (first, end)) in enumerate(zip(rows, spans, strict=True)):
            begins = end
            while begins > first and self._text.get((row, begins - 1)) == line[begins - 1]:
                begins -= 1
            size = end - begins
            tail = line[begins:end]
            others = [one for at, one in enumerate([*texts, *self._last]) if at % len(texts) != row]
            if begins == first or size < LEAST or len(set(tail)) < DISTINCT:
                continue
            # A text that other rows hold too is a template, or an answer that comes often.
            if not any(_is_half_in(tail[:MOST_COMPARED], one) for one in others):
                found.append(Leftover(self._calls, row, begins, size, line[begins - 1]))
        return found


def _pads_left(rows: Sequence[Line], spans: Sequence[Span]) -> bool:
    """Whether all rows end in the last column and some begin later than others: no end of such
    rows can be left over."""
    ends = all(end == len(line) for line, (_, end) in zip(rows, spans, strict=True))
    return ends and len({first for first, _ in spans}) > 1


def _is_half_in(text: Line, other: Line) -> bool:
    """Whether another text holds more than half of a text, in one piece."""
    size = len(text) // 2 + 1
    whole = _joined(other)
    return any(_joined(text[at : at + size]) in whole for at in range(len(text) - size + 1))


def _joined(ids: Line) -> str:
    return f",{','.join(map(str, ids))},"
