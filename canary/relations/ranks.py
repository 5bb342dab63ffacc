"""One rank and two."""

from __future__ import annotations

from typing import Any

from canary.relations.relation import SAME, Outcome, Relation, broken, holds, outcome
from canary.relations.trajectory import Recorded, near_steps, rows_of

RELATION = Relation(
    "ranks",
    "same work",
    "two ranks train on the same rows as one rank, each once, and learn the same except for "
    "rounding",
    "ranks see the same rows or do not share gradients, or a loss is averaged over ranks with "
    "different numbers of tokens; if you only train on one rank, use --skip ranks",
    "https://arxiv.org/abs/2506.09280",
    moment=None,
    variations=(
        {"name": "one rank", **SAME},
        {"name": "one rank, off by one rounding", **SAME, "perturbed": 1},
        {"name": "two ranks", **SAME, "ranks": 2},
    ),
    of_loop=({"name": "two ranks", "ranks": 2},),
)
NO_RANKS = "the program does not say that it can train on several ranks"
KL_OF_ALL = "KTO estimates its KL term with the rows of all ranks"
SHARE = 16
"""One of so many rows may be seen twice in the launch of a loop: ranks get equally many rows."""


def judge(base: Recorded, *launches: Recorded) -> Outcome:
    """Compare the rows of the updates, then what was learned from them. Nobody knows how a loop of
    its own shares its batches. So it has one launch, and each row must be seen once."""
    if len(launches) == 1:
        return _of_loop(base, launches[0])
    one, moved, two = launches
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


def _of_loop(base: Recorded, two: Recorded) -> Outcome:
    """Judge what two ranks of a plain loop did: how their loaders share the rows, the rows, and
    whether they still hold the same parameters in the end."""
    found = _shared(two)
    if found is not None:
        return found
    if two.get("ranks", {}).get("sharded") or _parameters(base) != _parameters(two):
        return outcome(RELATION.id, "not applicable", "each rank holds a part of the model")
    found = _rows_of_both(base, two) or _apart(two)
    if found is not None:
        return found
    rows = sum(map(len, rows_of(two)))
    if not rows:
        return outcome(RELATION.id, "undecided", "the rows were not recorded")
    return holds(RELATION, f"{rows} rows are shared by two ranks, which end with equal parameters")


def _shared(two: Recorded) -> Outcome | None:
    """Compare how the ranks' samplers share each dataset."""
    shares = two.get("varied", {}).get("shares", {})
    if len(shares) < 2:
        return None
    first, other = ({one["rows"]: one for one in shares[rank]} for rank in sorted(shares)[:2])
    for rows in first.keys() & other.keys():
        ours, theirs = first[rows], other[rows]
        if 1 in (ours["replicas"], theirs["replicas"]):
            continue  # A rank may read all rows of its own.
        if ours["rank"] == theirs["rank"]:
            words = f"both ranks read the share of rank {ours['rank']}"
            return broken(RELATION, f"{words} of {rows} rows")
        for name in ("seed", "epoch", "shuffle", "drop_last", "replicas"):
            if ours[name] != theirs[name]:
                words = f"the sampler of rank 0 has {name} {ours[name]}, that of rank 1 has "
                words += f"{theirs[name]}: these are no shares of one order of {rows} rows"
                return broken(RELATION, words, "", (ours[name], theirs[name]))
    return None


def _rows_of_both(base: Recorded, two: Recorded) -> Outcome | None:
    """Count the rows that the ranks saw twice, as far as the data is not read again."""
    natural = [row for step in rows_of(base) for row in step]
    is_rare = len(natural) - len({*natural}) <= len(natural) / SHARE
    count = two.get("data", {}).get("rows")
    seen: list[str] = []
    for step, now in enumerate(rows_of(two), start=1):
        seen += now
        if isinstance(count, int) and len(seen) > count:
            break
        again = len(seen) - len({*seen})
        if again > len(seen) / SHARE and is_rare and step > 1:
            words = f"two ranks see {again} of {len(seen)} rows twice"
            return broken(RELATION, words, f"update {step}", (len(seen) - again, len(seen)))
    return None


def _apart(two: Recorded) -> Outcome | None:
    """Compare the ranks' parameters, before and after the updates."""
    ranks = two.get("ranks", {})
    for moment, words in (("initial", "before the first"), ("final", "after the last")):
        hashes = {*ranks.get(f"{moment}_parameters_sha256", {}).values()} - {None}
        if len(hashes) > 1:
            return broken(RELATION, f"{words} update, the ranks hold different parameters")
    return None


def _parameters(launch: Recorded) -> Any:
    return launch.get("model", {}).get("parameters")
