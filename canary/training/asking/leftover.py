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
    _text: dict[tuple[int, int], int] = field(default_factory=dict)
    """The newest text by row and column."""
    _ends: Counter[int] = field(default_factory=Counter)
    """The last tokens of padded rows."""
    _last: list[Line] = field(default_factory=list)
    """The rows of the last call."""
    _older: list[Line] = field(default_factory=list)
    """The rows before it, of calls with one row."""
    _calls: int = 0
    _cleared: int = 0
    """Calls that have padding where a reused buffer would hold text."""
    _tokens: int = 0

    def left_over(self) -> list[Leftover]:
        """Return the ends that are left over, the longest first; none if no reused buffer explains
        the rows."""
        token, count = max(self._ends.items(), key=lambda one: one[1], default=(0, 0))
        end = token if count > ENDS * sum(self._ends.values()) else None
        found = [x for x in self.found if (x.size >= SURE if end is None else x.before == end)]
        found.sort(key=lambda one: -one.size)
        calls = {one.call for one in found}
        enough = len(found) > 1 or (end is not None and found and found[0].size >= SURE)
        return found if enough and self._cleared <= len(calls) else []

    def add(self, rows: Sequence[Line], spans: Sequence[Span]) -> None:
        """Add a call. `spans`: (first, end) of the text in each row."""
        self._tokens += sum(map(len, rows))
        if self._tokens > MOST_TOKENS:
            return
        lines = [
            (row, line, *span) for row, (line, span) in enumerate(zip(rows, spans, strict=True))
        ]
        texts = [tuple(line[first:end]) for _, line, first, end in lines]
        if any(
            self._text.get((row, at), line[at]) != line[at]
            for row, line, _, end in lines
            for at in range(end, len(line))
        ):
            self._cleared += 1
            self._text = {}
        # No end of rows that all pad on the left can be left over.
        pads_left = len({first for first, _ in spans}) > 1
        if not pads_left or any(end < len(line) for _, line, _, end in lines):
            for row, line, first, end in lines:
                self._look(row, line, first, end, texts)
        for row, line, first, end in lines:
            self._text |= {(row, at): line[at] for at in range(first, end)}
            if first < end < len(line):
                self._ends[line[end - 1]] += 1
        # A batch of one row has no other rows: what rows before the last one held says as much.
        self._older += self._last if len(texts) == 1 else []
        self._last = [*texts]
        self._calls += 1

    def _look(self, row: int, line: Line, first: int, end: int, texts: Sequence[Line]) -> None:
        begins = end
        while begins > first and self._text.get((row, begins - 1)) == line[begins - 1]:
            begins -= 1
        tail = line[begins:end]
        if begins == first or len(tail) < LEAST or len(set(tail)) < DISTINCT:
            return
        others = [one for at, one in enumerate([*texts, *self._last]) if at % len(texts) != row]
        others += self._older if len(texts) == 1 else []
        # A text that other rows hold too is a template, or an answer that comes often.
        if not any(_is_half_in(tail[:MOST_COMPARED], one) for one in others):
            self.found.append(Leftover(self._calls, row, begins, len(tail), line[begins - 1]))


def _is_half_in(text: Line, other: Line) -> bool:
    """Whether another text holds more than half of a text, in one piece."""
    size, whole = len(text) // 2 + 1, _joined(other)
    return any(_joined(text[at : at + size]) in whole for at in range(len(text) - size + 1))


def _joined(ids: Line) -> str:
    return f",{','.join(map(str, ids))},"
