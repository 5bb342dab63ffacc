"""One rank and two."""

from __future__ import annotations

from canary.relations.relation import SAME, Outcome, Relation, broken, outcome
from canary.relations.trajectory import Recorded, near_steps, rows_of

RELATION = Relation(
    "ranks",
    "same work",
    "two ranks train on the same rows as one rank, each once, and learn the same except for "
    "rounding",
    "ranks see the same rows, or a loss is averaged over ranks with different numbers of tokens",
    "https://arxiv.org/abs/2506.09280",
    moment=None,
    variations=(
        {"name": "one rank", **SAME},
        {"name": "one rank, off by one rounding", **SAME, "perturbed": 1},
        {"name": "two ranks", **SAME, "ranks": 2},
    ),
    no_loop="only a transformers Trainer can be told to share its batches",
)


def judge(base: Recorded, one: Recorded, moved: Recorded, two: Recorded) -> Outcome:
    """Compare the rows of the updates, then what was learned from them."""
    alone, together = rows_of(one), rows_of(two)
    if not any(alone) or not any(together):
        return outcome(RELATION.id, "undecided", "the rows were not recorded")
    count = _steps_of_one_epoch(one, alone)
    if not count:
        return outcome(RELATION.id, "not applicable", "one update uses all rows of the data")
    for step, (was, now) in enumerate(zip(alone, together, strict=False), start=1):
        if step > count or sorted(was) == sorted(now):
            continue
        twice, lost = len(now) - len({*now}), len({*was} - {*now})
        words = f"of {len(was)} rows, {lost} are missing and {twice} are seen twice"
        if not lost and not twice:
            words = f"{len(was)} rows become {len(now)}"
        return broken(RELATION, words, f"update {step}", (len(was), len(now)))
    found = near_steps(RELATION, one, moved, two, last=count)
    if found["status"] == "holds":
        found["message"] = f"two ranks see the same rows, and {found['message']}"
    return found


def _steps_of_one_epoch(one: Recorded, alone: list[list[str]]) -> int:
    """Return the steps before the data ends: then ranks get rows twice to have equally many."""
    rows, seen, steps = one.get("data", {}).get("rows"), 0, 0
    for step in alone:
        seen += len(step)
        if isinstance(rows, int) and seen > rows:
            break
        steps += 1
    return steps
