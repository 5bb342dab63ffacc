"""Ends of rows that are left over from an earlier batch, as of a collator that reuses a buffer.

Such a buffer is simulated: for each row and column, the newest token that an earlier call had.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

LEAST, DISTINCT = 16, 4
"""Tokens of an end that is left over, and different ones among them."""
MOST_COMPARED = 64
"""Tokens of an end that are looked for in other rows."""
MOST_TOKENS = 1 << 20
Line = Sequence[int]


class Leftover(NamedTuple):
    """A row whose end is that of the row that was there before."""

    size: int
    place: str
    """Model call (from 0, in the order of the training), row and first token that is left over."""
    row: int
    call: int


class Buffer:
    """What a reused buffer would hold, call after call."""

    def __init__(self) -> None:
        self._found: list[Leftover] = []
        self._text: dict[tuple[int, int], int] = {}
        """The newest text by row and column."""
        self._last: list[Line] = []
        """The texts of the last call."""
        self._older: list[Line] = []
        """The texts before it, of calls with one row."""
        self._calls = self._tokens = self._cleared = 0
        """`cleared`: calls that have padding where a reused buffer would hold text."""

    def left_over(self) -> list[Leftover]:
        """Return the ends that are left over, the longest first; none if no reused buffer explains
        the rows."""
        found = sorted(self._found, key=lambda one: -one.size)
        sure = len(found) > 1 and self._cleared <= len({one.call for one in found})
        return found if sure else []

    def add(self, rows: Sequence[Line], spans: Sequence[tuple[int, int]]) -> None:
        """Add a call. `spans`: (first, end) of the text in each row."""
        self._tokens += sum(map(len, rows))
        if self._tokens > MOST_TOKENS:
            return
        lines = [(row, rows[row], first, end) for row, (first, end) in enumerate(spans)]
        texts = [line[first:end] for _, line, first, end in lines]
        padding = [(row, at, line) for row, line, _, end in lines for at in range(end, len(line))]
        if any(self._text.get((row, at), line[at]) != line[at] for row, at, line in padding):
            self._cleared += 1
            self._text = {}
        # No end of rows that all pad on the left can be left over.
        if padding or len({first for first, _ in spans}) == 1:
            for row, line, first, end in lines:
                self._look(row, line, first, end, texts)
        for row, line, first, end in lines:
            self._text |= {(row, at): line[at] for at in range(first, end)}
        # A batch of one row has no other rows: what rows before the last one held says as much.
        self._older += self._last if len(texts) == 1 else []
        self._last = texts
        self._calls += 1

    def _look(self, row: int, line: Line, first: int, end: int, texts: Sequence[Line]) -> None:
        begins = end
        while begins > first and self._text.get((row, begins - 1)) == line[begins - 1]:
            begins -= 1
        tail = line[begins:end]
        if begins == first or len(tail) < LEAST or len(set(tail)) < DISTINCT:
            return
        # A text that other rows hold too, for more than half, is a template or comes often.
        others = [one for at, one in enumerate([*texts, *self._last]) if at % len(texts) != row]
        others += self._older if len(texts) == 1 else []
        most, whole = min(len(tail), MOST_COMPARED), [*map(_joined, others)]
        size = most // 2 + 1
        pieces = [_joined(tail[at : at + size]) for at in range(most - size + 1)]
        if not any(piece in other for piece in pieces for other in whole):
            place = f"model call {self._calls}, row {row}, token {begins}"
            self._found.append(Leftover(len(tail), place, row, self._calls))


def _joined(ids: Line) -> str:
    return f",{','.join(map(str, ids))},"
