"""Two launches of one training, compared step by step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from canary.relations.relation import Outcome, Relation, broken, holds, outcome

Recorded = Mapping[str, Any]
"""The exact signals of a launch, as in a record (`canary.record.exact`)."""


SERIES = {
    "losses": "loss",
    "grad_norms": "gradient norm",
    "learning_rates": "learning rate",
}
"""Compared values of a step, with their names for people."""


def series(recorded: Recorded, name: str) -> Sequence[float | None]:
    """Return `losses`, `grad_norms` or `learning_rates` of the steps."""
    found: Sequence[float | None] = recorded.get("trajectory", {}).get(name, [])
    return found


def equal_steps(
    relation: Relation, base: Recorded, other: Recorded, first: int = 1, within: float = 0.0
) -> Outcome:
    """Compare losses, gradient norms and learning rates.

    Args:
        relation: what is judged.
        base: the launch as it is.
        other: the launch that does it in another way; its first step is step `first`.
        first: number of that step in the base.
        within: how far values may be apart, relative.
    """
    compared: set[int] = set()
    for name, word in SERIES.items():
        pairs = zip(series(base, name)[first - 1 :], series(other, name), strict=False)
        for step, (was, now) in enumerate(pairs, start=first):
            if was is None or now is None:
                continue
            compared.add(step)
            if not same(was, now, within):
                words = f"the {word} {was:.9g} becomes {now:.9g}"
                return broken(relation, words, f"update {step}", (was, now))
    if not compared:
        return outcome(relation.id, "undecided", "the launches recorded no losses")
    equal = "equal" if not within else f"equal within {within:.2g}"
    steps = f"updates {first} to {max(compared)}"
    return holds(relation, f"losses and gradient norms of {steps} are {equal}")


FACTOR = 8.0
"""As in `canary.training.relations.rounding`: two ways to compute round more often than one
perturbed parameter does."""
FLOOR = 16 * 1.2e-7
"""Relative; sixteen roundings of float32, in which losses are computed."""


def near_steps(
    relation: Relation, base: Recorded, moved: Recorded, other: Recorded, last: int | None = None
) -> Outcome:
    """Compare losses, gradient norms and learning rates within the tolerance.

    Args:
        relation: what is judged.
        base: the launch as it is.
        moved: the same with parameters that are off by one rounding. An optimizer may amplify it
            with each step, so it is measured up to each step.
        other: the launch that does it in another way.
        last: the last step to compare.
    """
    compared, most = set(), 0.0
    for name, word in SERIES.items():
        response = 0.0
        lines = (series(one, name) for one in (base, moved, other))
        for step, (was, perturbed, now) in enumerate(zip(*lines, strict=False), start=1):
            if was is None or perturbed is None or now is None or (last and step > last):
                continue
            compared.add(step)
            response = max(response, abs(perturbed - was))
            allowed, apart = max(FACTOR * response, FLOOR * abs(was)), abs(now - was)
            if not apart <= allowed and not (was != was and now != now):
                words = f"the {word} {was:.9g} becomes {now:.9g}, allowed {allowed:.2g}"
                found = broken(relation, words, f"update {step}", (was, now))
                found["tolerance"] = allowed
                return found
            most = max(most, apart / allowed if allowed else 0.0)
    if not compared:
        return outcome(relation.id, "undecided", "the launches recorded no losses")
    updates = f"updates 1 to {max(compared)}"
    words = f"the largest difference in {updates} is {most:.0%} of the allowed one"
    return holds(relation, words)


def first_apart(base: Recorded, other: Recorded, name: str, first: int = 1) -> int | None:
    """Return the first step in which a series differs; `other` begins at step `first`."""
    pairs = zip(series(base, name)[first - 1 :], series(other, name), strict=False)
    return next(
        (
            step
            for step, (was, now) in enumerate(pairs, start=first)
            if was is not None and now is not None and not same(was, now)
        ),
        None,
    )


def same(one: float, other: float, within: float = 0.0) -> bool:
    """Whether two numbers are equal but for a relative difference, or both are no numbers."""
    both_nan = one != one and other != other
    return both_nan or abs(other - one) <= within * max(abs(one), abs(other))


SAMPLED = "completion_ids"
"""Rows that the training samples itself."""


def rows_of(recorded: Recorded, *, sampled: bool = True) -> list[list[str]]:
    """Return the hashes of the rows of each step. `sampled`: with those that it samples itself."""
    return [
        [
            row
            for micro in step
            for name, rows in micro.get("rows", {}).items()
            if sampled or name != SAMPLED
            for row in rows
        ]
        for step in recorded.get("batches", [])
    ]
