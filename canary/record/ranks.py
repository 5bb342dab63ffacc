"""Several ranks as one run: rows merged by step, and comparisons between ranks. Pure.

Busy time is wall time without waiting. In a synchronous step every rank takes as long as the
slowest: the others wait for it.
"""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from canary.record import jsonio
from canary.record.jsonio import number
from canary.record.step_row import is_timed

if TYPE_CHECKING:
    # Not at run time: `rank_path` also runs in the Python of a user's command.
    from canary.record.exact import Exact, Micro, RankParameters
    from canary.record.step_row import Row

ByRank: TypeAlias = "Mapping[int, Sequence[Row]]"

SUMMED = ("input_tokens", "label_tokens", "completion_tokens", "samples", "cpu_s")
OF_THE_SLOWEST = ("wall_s", "phases", "phases_cpu", "host")
LARGEST = ("rss_bytes", "allocated_bytes", "reserved_bytes", "peak_bytes", "alloc_retries", "time")


def rank_path(path: Path, rank: int) -> Path:
    """Return a rank's file, given rank 0's: `steps.jsonl`, `steps.rank1.jsonl`, ..."""
    return path if rank == 0 else path.with_name(f"{path.stem}.rank{rank}{path.suffix}")


def rank_files(path: Path) -> dict[int, Path]:
    """Return the existing files of all ranks, given rank 0's."""
    found = {0: path} if path.exists() else {}
    start = f"{path.stem}.rank"
    for file in path.parent.glob(f"{start}*{path.suffix}"):
        rank = file.name[len(start) : len(file.name) - len(path.suffix)]
        if rank.isascii() and rank.isdecimal():
            found[int(rank)] = file
    return dict(sorted(found.items()))


class RankSteps:
    """Follows the rows of every rank while they are written; `path` is rank 0's file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offsets: dict[int, int] = {}
        self._rows: dict[int, list[Row]] = {}

    def read(self) -> dict[int, list[Row]]:
        """Return all rows so far by rank, in order, without ranks that wrote none."""
        for rank, file in rank_files(self._path).items():
            rows, self._offsets[rank] = jsonio.rows_since(file, self._offsets.get(rank, 0))
            _add(rows, self._rows.setdefault(rank, []))
        return {rank: rows for rank, rows in sorted(self._rows.items()) if rows}


def _add(new: Sequence[Row], rows: list[Row]) -> None:
    """Append rows. A launch that began its steps anew replaces the rows that were read before."""
    for row in new:
        while rows and _place(rows[-1]) >= _place(row):
            rows.pop()
        rows.append(row)


def _place(row: Row) -> tuple[float, float]:
    return number(row.get("launch", 0)), number(row["step"])


def busy_s(row: Row) -> float:
    """Return the seconds of a rank's step without waits for the other ranks."""
    return max(0.0, float(row["wall_s"]) - float(row.get("wait_s") or 0.0))


def _steps(by_rank: ByRank) -> list[dict[int, Row]]:
    """Return the rows by rank of each step that all ranks completed, in order."""
    found: dict[tuple[int, int], dict[int, Row]] = defaultdict(dict)
    for rank, rows in sorted(by_rank.items()):
        for row in rows:
            found[row["launch"], row["step"]][rank] = row
    return [rows for _, rows in sorted(found.items()) if len(rows) == len(by_rank)]


def merged_rows(by_rank: ByRank) -> list[Row]:
    """Return one row per step for all ranks; a single rank's rows unchanged.

    Wall time and phases are those of the busiest rank, because the others wait for it. Tokens,
    samples and CPU seconds are sums. Losses and RL metrics are means, as trainers log them. Memory
    is the largest of any rank.
    """
    present = {rank: rows for rank, rows in by_rank.items() if rows}
    if len(present) < 2:
        return [row for rows in present.values() for row in rows]
    return [_merged(rows) for rows in _steps(present)]


def _merged(rows: Mapping[int, Row]) -> Row:
    slowest = max(rows, key=lambda rank: busy_s(rows[rank]))
    every = list(rows.values())
    merged: dict[str, object] = {
        **rows[min(rows)],
        **{key: value for key, value in rows[slowest].items() if key in OF_THE_SLOWEST},
        **{key: _of(every, key, sum) for key in SUMMED},
        **{key: _of(every, key, max) for key in LARGEST},
        "loss": mean_of([row.get("loss") for row in every]),
        "micro_losses": columns([row.get("micro_losses") or [] for row in every]),
        "rl": mean_by_name([row.get("rl") or {} for row in every]),
        "slowest": slowest,
        "imbalance": imbalance(rows),
    }
    return cast("Row", merged)


def _of(rows: Sequence[Row], key: str, take: Callable[[list[Any]], object]) -> object:
    values = [row.get(key) for row in rows if row.get(key) is not None]
    return take(values) if values else None


def imbalance(rows: Mapping[int, Row]) -> float:
    """Return one step's imbalance: the busiest rank's time over the mean, minus 1."""
    busy = [busy_s(row) for row in rows.values()]
    mean = statistics.fmean(busy)
    return max(busy) / mean - 1 if mean > 0 else 0.0


def mean_of(values: Sequence[Any]) -> float | None:
    """Return the mean, summed in order; NaN if a value is NaN, None if a value is missing."""
    if not values or any(value is None for value in values):
        return None
    return sum(float(number(value)) for value in values) / len(values)


def columns(lists: Sequence[Sequence[Any]]) -> list[float | None]:
    """Return means by position, as many as the shortest list has."""
    return [mean_of(values) for values in zip(*lists, strict=False)]


def mean_by_name(mappings: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return means by name, over the ranks that have the name."""
    names = dict.fromkeys(name for mapping in mappings for name in mapping)
    means = {name: mean_of([m[name] for m in mappings if name in m]) for name in names}
    return {name: value for name, value in means.items() if value is not None}


def describe_ranks(by_rank: ByRank, warmup: int) -> dict[str, Any]:
    """Return the part of `RunRecord.ranks` that rows give, without warm-up and profiled steps;
    empty for one rank.

    `imbalance` has one value per step, `wait_s` one per rank and step.
    """
    present = {rank: rows for rank, rows in by_rank.items() if rows}
    if len(present) < 2:
        return {}
    steps = [
        rows
        for rows in _steps(present)
        if all(row["step"] > warmup for row in rows.values()) and all(map(is_timed, rows.values()))
    ]
    if not steps:
        return {}
    slowest = Counter(max(rows, key=lambda rank: busy_s(rows[rank])) for rows in steps)
    counts = [rows[min(rows)].get("collectives") for rows in steps]
    return {
        "imbalance": [imbalance(rows) for rows in steps],
        "wait_s": [row["wait_s"] for rows in steps for row in rows.values() if "wait_s" in row],
        "collectives_per_step": mean_of(counts),
        "slowest_steps": {str(rank): slowest.get(rank, 0) for rank in present},
        "by_rank": {str(rank): _one_rank(rank, steps) for rank in present},
    }


def _one_rank(rank: int, steps: Iterable[Mapping[int, Row]]) -> dict[str, Any]:
    """Return means over the steps in seconds, and the largest resident memory in bytes."""
    rows = [each[rank] for each in steps]
    waits = [row.get("wait_s") for row in rows]
    peaks = [peak for row in rows if (peak := row.get("rss_bytes")) is not None]
    return {
        "step_time_s": statistics.fmean(row["wall_s"] for row in rows),
        "busy_s": statistics.fmean(busy_s(row) for row in rows),
        "wait_s": mean_of(waits),
        "peak_rss_bytes": max(peaks, default=None),
    }


def merged_exact(by_rank: Mapping[int, Exact]) -> Exact:
    """Return a run's `exact`: rank 0's, with all batches and hashes of all ranks' parameters. What
    else differs on another rank shows in the gradients, which ranks share."""
    first = by_rank[min(by_rank)]
    if len(by_rank) < 2 or not first:
        return first
    return {**first, "batches": _batches(by_rank), "ranks": _parameters(by_rank)}


def _parameters(by_rank: Mapping[int, Exact]) -> RankParameters:
    """Return hashes of each rank's first and last parameters."""
    return {
        "initial_parameters_sha256": {
            str(rank): exact.get("model", {}).get("parameters_sha256")
            for rank, exact in sorted(by_rank.items())
        },
        "final_parameters_sha256": {
            str(rank): exact.get("frozen", {}).get("final_parameters_sha256")
            for rank, exact in sorted(by_rank.items())
        },
        "sharded": any(exact.get("model", {}).get("sharded") for exact in by_rank.values()),
    }


def _batches(by_rank: Mapping[int, Exact]) -> list[list[Micro]]:
    """Return each step's micro-batches of all ranks in order, each with its rank."""
    lists = {rank: exact.get("batches", []) for rank, exact in sorted(by_rank.items())}
    steps = max(len(batches) for batches in lists.values())
    return [
        [
            {"rank": rank, **micro}
            for rank, batches in lists.items()
            if step < len(batches)
            for micro in batches[step]
        ]
        for step in range(steps)
    ]
