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


def runs_of(text: str) -> list[tuple[int, int]]:
    """Return the (first, last) lines of each run in such a text, leaving out what is none."""
    found = []
    for run in text.split(","):
        first, _, last = run.partition("-")
        if first.isdecimal() and (last or first).isdecimal():
            found.append((int(first), int(last or first)))
    return found
