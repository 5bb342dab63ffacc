"""The score of an answer to an embedded task."""

from __future__ import annotations

from collections import Counter
from itertools import takewhile

PARTIAL_CREDIT = 0.8
"""The highest score of a completion other than the answer."""


def score(completion_text: str, answer: str) -> float:
    """Return how correct a completion is, in [0, 1]: 1 for the answer, outer spaces ignored.

    Otherwise PARTIAL_CREDIT times the mean of two shares of the longer text: the characters in the
    common prefix, and those that both texts contain in any order. So a completion that is too long
    scores less, and completions of one prompt rarely tie.
    """
    given, right = completion_text.strip(), answer.strip()
    if given == right:
        return 1.0
    longer = max(len(given), len(right))
    pairs = zip(given, right, strict=False)
    prefix = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    shared = (Counter(given) & Counter(right)).total()
    return PARTIAL_CREDIT * (prefix + shared) / (2 * longer)
