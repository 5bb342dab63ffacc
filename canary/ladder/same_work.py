"""Whether two launches did the same work: only then is a ratio of their speeds a speed-up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from canary.compare.exact.inputs_stages import rows_of
from canary.record.exact import Exact
from canary.record.step_row import Row

COUNTS = {
    "samples": "sequences",
    "input_tokens": "tokens without padding",
    "label_tokens": "label tokens",
    "completion_tokens": "completion tokens",
    "updates": "updates",
}
"""What a step's row counts of the work that the job asks for; padding is none of it."""
WHERE_BOTH = frozenset({"input_tokens"})
"""Compared where both count it: trl's own PPO does not say what it is fed."""


@dataclass(frozen=True)
class Work:
    """What each optimizer step of one launch worked on, in the order of the steps."""

    steps: int
    counts: Mapping[str, tuple[float, ...]]
    """By the key of COUNTS, a number a step; a key that the rows do not have is left out."""


def work_of(rows: Iterable[Row]) -> Work:
    """The work in the rows of one measured launch."""
    found = list(rows)
    counts = {}
    for key in COUNTS:
        values = [row.get(key, (row.get("rl") or {}).get(key)) for row in found]
        known = tuple(float(value) for value in values if isinstance(value, int | float))
        if known and len(known) == len(values):
            counts[key] = known
    return Work(len(found), counts)


def unequal(reference: Work, other: Work) -> str:
    """In what the other's work differs from the reference's, in words; empty where it is equal."""
    if reference.steps != other.steps:
        return f"{other.steps} steps instead of {reference.steps}"
    for key, words in COUNTS.items():
        wanted, found = reference.counts.get(key), other.counts.get(key)
        if (wanted is None) != (found is None) and key in WHERE_BOTH:
            continue
        if (wanted is None) != (found is None):
            who = "the reference" if wanted is None else "this one"
            return f"{who} does not count its {words}"
        for step, (before, after) in enumerate(zip(wanted or (), found or (), strict=True), 1):
            if before != after:
                return f"{after:,.0f} {words} in step {step} instead of {before:,.0f}"
    return ""


def other_rows(reference: Exact, other: Exact) -> str:
    """In which step the other's probe trained on other rows than the reference's, in words; empty
    where on the same. Rows are told by their ids without padding, in whatever order."""
    pairs = zip(reference.get("batches", []), other.get("batches", []), strict=False)
    for step, (before, after) in enumerate(pairs, start=1):
        wanted, found = rows_of(before), rows_of(after)
        for name in wanted.keys() & found.keys():
            missing, added = wanted[name] - found[name], found[name] - wanted[name]
            if missing or added:
                return (
                    f"other rows in step {step}: {missing.total()} of {wanted[name].total()} "
                    f"missing, {added.total()} that are not there otherwise"
                )
    return ""
