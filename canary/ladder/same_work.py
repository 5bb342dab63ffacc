"""Compare the work of two launches: a ratio of speeds is a speed-up only for equal work."""

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
"""Counts of a step's row that measure the work of the job; padding does not count."""
WHERE_BOTH = frozenset({"input_tokens"})
"""Compared only if both launches count it: trl's PPO does not count its input."""


@dataclass(frozen=True)
class Work:
    """The work of each optimizer step of one launch, in order."""

    steps: int
    counts: Mapping[str, tuple[float, ...]]
    """One number per step by key of COUNTS, without keys that the rows lack."""


def work_of(rows: Iterable[Row]) -> Work:
    """Sum up the rows of one measured launch."""
    found = list(rows)
    counts = {}
    for key in COUNTS:
        values = [row.get(key, (row.get("rl") or {}).get(key)) for row in found]
        known = tuple(float(value) for value in values if isinstance(value, int | float))
        if known and len(known) == len(values):
            counts[key] = known
    return Work(len(found), counts)


def unequal(reference: Work, other: Work) -> str:
    """Describe the first difference from the reference's work; empty if it is equal."""
    if reference.steps != other.steps:
        return f"{other.steps} steps instead of {reference.steps}"
    for key, words in COUNTS.items():
        wanted, found = reference.counts.get(key), other.counts.get(key)
        if (wanted is None) != (found is None) and key in WHERE_BOTH:
            continue
        if (wanted is None) != (found is None):
            who = "the reference" if wanted is None else "this launch"
            return f"{who} does not count its {words}"
        for step, (before, after) in enumerate(zip(wanted or (), found or (), strict=True), 1):
            if before != after:
                return f"{after:,.0f} {words} in step {step} instead of {before:,.0f}"
    return ""


def other_rows(reference: Exact, other: Exact) -> str:
    """Describe the first step whose rows differ from those of the reference's probe; empty if all
    are equal. Rows are compared by their ids without padding, in any order."""
    pairs = zip(reference.get("batches", []), other.get("batches", []), strict=False)
    for step, (before, after) in enumerate(pairs, start=1):
        wanted, found = rows_of(before), rows_of(after)
        for name in wanted.keys() & found.keys():
            missing, added = wanted[name] - found[name], found[name] - wanted[name]
            if missing or added:
                return (
                    f"different rows in step {step}: {missing.total()} of {wanted[name].total()} "
                    f"missing, {added.total()} added"
                )
    return ""
