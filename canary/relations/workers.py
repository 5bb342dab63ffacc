"""Processes that load data."""

from __future__ import annotations

from canary.relations.relation import Outcome, Relation, broken, outcome
from canary.relations.trajectory import Recorded, equal_steps, rows_of

RELATION = Relation(
    "workers",
    "same work",
    "two data workers give the same rows as no worker, each once",
    "every worker of an iterable dataset reads all data, or a worker has its own random numbers",
    "https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.IterableDataset",
    moment=None,
    variations=(
        {"name": "no worker", "arguments": {"dataloader_num_workers": 0}},
        {
            "name": "two workers",
            "arguments": {"dataloader_num_workers": 2, "dataloader_persistent_workers": False},
        },
    ),
)


def judge(base: Recorded, none: Recorded, two: Recorded) -> Outcome:
    """Compare the rows of all steps, then what was learned from them."""
    alone, together = rows_of(none), rows_of(two)
    if not any(alone) or not any(together):
        return outcome(RELATION.id, "undecided", "the rows were not recorded")
    for step, (was, now) in enumerate(zip(alone, together, strict=False), start=1):
        if sorted(was) != sorted(now):
            seen = {row for rows in together[:step] for row in rows}
            twice = sum(len(rows) for rows in together[:step]) - len(seen)
            before = len({row for rows in alone[:step] for row in rows})
            words = (
                f"the rows differ: {len(seen)} different rows up to here with two workers, "
                f"{before} with none"
            )
            return broken(RELATION, words, f"step {step}", (float(len(was)), float(twice)))
    return equal_steps(RELATION, none, two)
