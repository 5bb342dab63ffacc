"""Line numbers as text: `1-20,25`."""

from __future__ import annotations

from collections.abc import Iterable


def ranges(lines: Iterable[int]) -> str:
    """Return line numbers as text."""
    runs: list[list[int]] = []
    for line in sorted(set(lines)):
        if runs and line == runs[-1][1] + 1:
            runs[-1][1] = line
        else:
            runs.append([line, line])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def lines_in(text: str) -> set[int]:
    """Return the line numbers of such a text. Raises ValueError if it is none."""
    found: set[int] = set()
    for run in filter(None, text.split(",")):
        first, _, last = run.partition("-")
        found |= {*range(int(first), int(last or first) + 1)}
    return found
