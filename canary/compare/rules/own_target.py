"""Rows and their targets."""

from __future__ import annotations

import re

from canary.compare.rules.facts import warned
from canary.compare.rules.rule import Answer, Rule, answer, not_asked
from canary.record.types import RunRecord

SIZES = "Using a target size"
"""Begins what torch says of a loss whose shapes differ."""


def judge(record: RunRecord) -> Answer:
    """A loss of shapes (N, 1) and (N,) is a mean over N by N pairs: each row learns the mean of all
    targets."""
    outer = record.exact.get("work", {}).get("outer_losses")
    shapes = [tuple(map(tuple, one)) for one in outer or [] if len(one) == 2] or _warned_of(record)
    if not shapes:
        if outer is None:
            return not_asked("the operators of no step were seen")
        return answer(False, "no loss pairs rows with the targets of others")
    rows, targets = shapes[0]
    words = f"a loss compares rows of shape {rows} with targets of shape {targets}"
    if not _grows(rows, targets):
        return answer(True, words, doubt="is one target for several numbers on purpose?")
    return answer(True, f"{words}: each row is trained towards the targets of all", size=1)


def _warned_of(record: RunRecord) -> list[tuple[tuple[int, ...], ...]]:
    sizes = re.findall(r"Size\(\[((?:[0-9]{1,18}(?:, |(?=\])))*)\]\)", warned(record, SIZES))
    if len(sizes) != 2:
        return []
    target, rows = (tuple(int(n) for n in one.split(",") if n.strip()) for one in sizes)
    return [(rows, target)]


def _grows(rows: tuple[int, ...], targets: tuple[int, ...]) -> bool:
    """Whether both shapes must be repeated to fit to each other."""
    width = max(len(rows), len(targets))
    one, other = ((1,) * (width - len(shape)) + tuple(shape) for shape in (rows, targets))
    pairs = [*zip(one, other, strict=True)]
    return any(a < b for a, b in pairs) and any(a > b for a, b in pairs)


RULE = Rule(
    "own_target",
    "a loss compares each row with its own target",
    "a difference of two shapes, one of which has a gradient, in the counted step; or torch's "
    "warning",
    "give both the same shape, by squeeze(-1) or unsqueeze(-1)",
    "https://github.com/RLinf/RLinf/issues/1568",
    judge,
)
