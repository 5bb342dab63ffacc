"""Processes that load data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from canary.relations.relation import Outcome, Relation, Variation, broken, holds, outcome
from canary.relations.trajectory import Recorded, equal_steps, rows_of

VARIATIONS: Sequence[Variation] = (
    {"name": "no worker", "workers": 0},
    {"name": "two workers", "workers": 2},
)
NO_LOADER = "no DataLoader gives the batches"
SHARE = 16
"""One of so many rows must be seen again: a stream may hold a row twice, and split it later."""

RELATION = Relation(
    "workers",
    "same work",
    "two data workers give the same rows as no worker, each once",
    "every worker of an iterable dataset reads all data, or a worker has its own random numbers",
    "https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.IterableDataset",
    moment=None,
    variations=(*VARIATIONS,),
    of_loop=(*VARIATIONS,),
)


def judge(base: Recorded, none: Recorded, two: Recorded) -> Outcome:
    """Compare the rows of all steps, then what was learned from them."""
    alone, together = rows_of(none), rows_of(two)
    if not any(alone) or not any(together):
        return outcome(RELATION.id, "undecided", "the rows were not recorded")
    if two.get("varied", {}).get("iterable"):
        return _of_stream(alone, together)
    ways = [("two workers", together)]
    if base.get("varied", {}).get("workers"):
        # Workers that live on may keep what the main process changes later.
        ways.append(("the loop's own workers", rows_of(base)))
    for words, rows in ways:
        apart = _apart(alone, rows, words)
        if apart is not None:
            return apart
    return equal_steps(RELATION, none, two)


def _apart(alone: list[list[str]], together: list[list[str]], words: str) -> Outcome | None:
    for step, (was, now) in enumerate(zip(alone, together, strict=False), start=1):
        if was and now and sorted(was) != sorted(now):
            seen = {row for rows in together[:step] for row in rows}
            twice = sum(len(rows) for rows in together[:step]) - len(seen)
            before = len({row for rows in alone[:step] for row in rows})
            message = (
                f"the rows differ: {len(seen)} different rows up to here with {words}, "
                f"{before} with none"
            )
            return broken(RELATION, message, f"update {step}", (float(len(was)), float(twice)))
    return None


def _of_stream(alone: list[list[str]], together: list[list[str]]) -> Outcome:
    """Judge the rows of a stream that workers split: their order differs rightly.

    A fault is a row that comes again with workers and is there once without. Rows that come again
    without workers too are in the data several times.
    """
    once = Counter(row for step in alone for row in step)
    seen: Counter[str] = Counter()
    natural = sum(count - 1 for count in once.values())
    rows, again, first = 0, 0, 0
    for step, now in enumerate(together, start=1):
        for row in now:
            rows += 1
            seen[row] += 1
            if once[row] and seen[row] > once[row]:
                again += 1
                first = first or step
    if again > rows / SHARE:
        words = (
            f"of {rows} rows, {again} are seen again with two workers, and {natural} of "
            f"{sum(once.values())} with none"
        )
        if again <= 2 * natural:
            words += ": the data itself holds many rows several times"
            return outcome(RELATION.id, "undecided", words, f"update {first}")
        return broken(RELATION, words, f"update {first}", (natural, again))
    words = f"two workers split a stream: {len(seen)} different rows of {rows} are seen"
    return holds(RELATION, words)
