"""A changed place in words: where it is, and its lines before and after."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass

from canary.compare.ran_lines import MODULE
from canary.compare.report import Place, Places, stripped
from canary.errors import counted, cut, nearest

SHOWN = 3
"""Places that an answer names."""
LONGEST, AROUND = 80, 20
"""Characters of a changed line in an answer; of a long one, those around what is cut."""
MOST_COMPARED = 1_000
"""Characters of a line that are compared: the time grows faster than their square."""
MOST_LINES = 4
"""Changed lines of one side in an answer."""


@dataclass(frozen=True)
class ChangedLines:
    """Changed lines of one side of a hunk, as shown."""

    label: str
    """`was`, `now`, `added`, `removed` or `moved`."""
    lines: tuple[str, ...]
    more: str = ""
    """How many lines are not shown: `(+2 lines)`."""


def where(place: Place) -> str:
    """Return the place: `train.py:88 in collate`, a key or a package."""
    line = f":{place.line}" if place.line is not None else ""
    inside = f" in {place.function}" if place.function not in ("", MODULE) else ""
    return f"{place.name}{line}{inside}"


def sentence(place: Place) -> str:
    """Return the place and its first changed line, before and after the change."""
    how, was, text = change_of(place)
    words = f"{was} -> {text}" if was else f"{how}: {text}" if how else text
    return f"{where(place)}: {words}" if words else f"{where(place)} changed"


def change_of(place: Place) -> tuple[str, str, str]:
    """Return how its first changed line changed (`added`, `removed` or `moved`; empty for an edit),
    the line before an edit, and the line; of a key, its values. All are empty if unknown."""
    if place.kind not in ("code", "file"):
        return "", " ".join(place.removed), " ".join(place.added)
    sides = {label: stripped(lines) for label, lines in _changed_lines(place)}
    if "was" in sides:
        gone, now = sides["was"], sides["now"][0]
        short = {one[:MOST_COMPARED]: one for one in reversed(gone)}
        closest = nearest(now[:MOST_COMPARED], [*short])
        return "", *_apart(short[closest] if closest else gone[0], now)
    return next(((how, "", cut(lines[0], LONGEST)) for how, lines in sides.items()), ("", "", ""))


def whole_change(place: Place) -> tuple[ChangedLines, ...]:
    """Return the changed lines of code of which more than one was added or removed: `was` and
    `now`, or one of `added`, `removed` and `moved`. Empty if `change_of` says it all."""
    sides = _changed_lines(place) if place.kind in ("code", "file") else []
    if all(len(lines) < 2 for _, lines in sides):
        return ()
    texts = [textwrap.dedent("\n".join(lines)).split("\n") for _, lines in sides]
    if len(texts) == 2 and len(texts[0]) == len(texts[1]):
        pairs = [_apart(*pair) for pair in zip(*texts, strict=True)]
        texts = [list(lines) for lines in zip(*pairs, strict=True)]
    return tuple(
        ChangedLines(
            label,
            tuple(cut(one, LONGEST) for one in lines[:MOST_LINES]),
            f"(+{counted(more, 'line')})" if (more := len(lines) - MOST_LINES) > 0 else "",
        )
        for (label, _), lines in zip(sides, texts, strict=True)
    )


def _changed_lines(place: Place) -> list[tuple[str, list[str]]]:
    """Return the lines of a change by what happened to them, without those that are on both sides;
    if all are, they `moved`."""
    was, now = ([one for one in lines if one.strip()] for lines in (place.removed, place.added))
    texts = [{*stripped(lines)} for lines in (was, now)]
    gone = [one for one in was if one.strip() not in texts[1]]
    came = [one for one in now if one.strip() not in texts[0]]
    if gone and came:
        return [("was", gone), ("now", came)]
    found = (("added", came), ("removed", gone), ("moved", now))
    return [(how, lines) for how, lines in found if lines][:1]


def _apart(was: str, now: str) -> tuple[str, str]:
    """Return both lines, cut in the middle where they are equal, so that what differs is seen."""
    pairs = enumerate(zip(was, now, strict=False))
    start = next((at for at, (a, b) in pairs if a != b), min(len(was), len(now)))
    if max(len(was), len(now)) > LONGEST and start > LONGEST // 2:
        was, now = (f"{line[:AROUND]}…{line[start - AROUND :]}" for line in (was, now))
    return cut(was, LONGEST), cut(now, LONGEST)


def only(places: Places) -> str:
    """Return what makes the first place stand out: `the only changed code that ran`, or empty."""
    if len(places.code) != 1 or len(places.ran) != 1:
        return ""
    if not places.known and places.idle:
        return ""
    if places.hidden:
        return "the only changed code that was seen to run"
    if not places.idle:
        return "the only changed code"
    return "the only changed code that ran" if places.by_line else "the only changed code in use"
