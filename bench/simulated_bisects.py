"""How often searches for a commit are right, in simulation: `python -m bench.simulated_bisects`.

`bench/simulated_launches.py` has the machine, which was written before the searches. Each cell is a
place, a noise and a change among 64 commits. All methods meet the same machines and culprits:

- `canary`: `canary.bisect.noisy.Noisy`.
- `git bisect run`: a commit is bad if it is slower than halfway between both ends. Ends and commits
  have one launch each, or the median of three.
- `five pairs`: log2(n) commits, each in five pairs with the good end. Bad if the mean difference is
  above half of that of both ends, which have five pairs too.
- `git-bayesect` 1.2, with `--confidence 0.98`: the same threshold, from five launches of each end.
  It needs `pip install --no-deps --target build/bayesect git-bayesect==1.2` and
  `PYTHONPATH=build/bayesect`; without it the column is left out.

A cell says right/wrong/not decided in percent, and mean launches. Where a range is the answer, it
is right if it holds the culprit.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import multiprocessing
import random
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from bench.simulated_launches import PLACES, Machine, State, broken, linear, merged
from canary.bisect.noisy import Noisy
from canary.bisect.search import Seen

COMMITS = 64
NOISES = (0.02, 0.05, 0.10)
CHANGES = (0.05, 0.10, 0.20)
LEAST = math.log1p(0.03)
"""The least change of interest."""
BUDGET = 120
CONFIDENCE = 0.98
BAR_LAUNCHES = 60
"""Of log2(64) commits by five pairs each, without those of the ends."""


@dataclass(frozen=True)
class History:
    """A space of commits, some of which do not build."""

    commits: Sequence[State]
    broken: frozenset[State] = frozenset()

    @property
    def bad(self) -> State:
        return (1 << len(self.commits)) - 1

    def states(self, likely: State) -> Sequence[State]:
        return [state for state in self.commits if state != self.bad]


class Result(NamedTuple):
    """The answer of one search; no suspects if it is not decided."""

    suspects: tuple[int, ...]
    launches: int


Method = Callable[[Machine, History], Result]


def canary(machine: Machine, history: History, budget: int = BUDGET) -> Result:
    """Search as `canary bisect` does."""
    search = Noisy(len(history.commits), history.states, LEAST)
    while machine.launches < budget and (state := search.ask()) is not None:
        if state in history.broken:
            search.tell(Seen(state, "skip"))
        else:
            search.tell(Seen(state, value=machine.launch(state)))
    answer = search.answer()
    return Result(answer.suspects if answer.decided else (), machine.launches)


def bisect_run(machine: Machine, history: History, launches: int) -> Result:
    """Search as `git bisect run` does with a script that compares with a threshold."""

    def median(state: State) -> float:
        return statistics.median(machine.launch(state) for _ in range(launches))

    limit = (median(0) + median(history.bad)) / 2
    return halve(machine, history, lambda state: median(state) > limit)


def five_pairs(machine: Machine, history: History) -> Result:
    """Search with five pairs per commit, each with the good end."""

    def slower(state: State) -> float:
        return statistics.fmean(-machine.launch(0) + machine.launch(state) for _ in range(5))

    limit = slower(history.bad) / 2
    return halve(machine, history, lambda state: slower(state) > limit)


def halve(machine: Machine, history: History, is_bad: Callable[[State], bool]) -> Result:
    """Search a history without merges by halves."""
    good, bad = 0, len(history.commits)
    while bad - good > 1:
        middle = (good + bad) // 2
        if is_bad(history.commits[middle - 1]):
            bad = middle
        else:
            good = middle
    return Result((bad - 1,), machine.launches)


def bayesect(machine: Machine, history: History, package: Any) -> Result:
    """Search as `git bayesect run` does. Its index 0 is the bad end, its last one the good end."""
    states = [*reversed(history.commits), 0]
    ends = [[machine.launch(end) for _ in range(5)] for end in (0, history.bad)]
    limit = sum(map(statistics.median, ends)) / 2
    search = package.Bisector([1.0] * len(states))
    for index, values in ((len(states) - 1, ends[0]), (0, ends[1])):
        for value in values:
            search.record(index, value > limit)
    while machine.launches < BUDGET and search.distribution.max() < CONFIDENCE:
        index = search.select()
        search.record(index, machine.launch(states[index]) > limit)
    if search.distribution.max() < CONFIDENCE:
        return Result((), machine.launches)
    return Result((len(history.commits) - 1 - int(search.distribution.argmax()),), machine.launches)


def methods() -> dict[str, Method]:
    """Return the methods to compare; git-bayesect only where it is installed."""
    found: dict[str, Method] = {
        "canary": canary,
        "`git bisect run`": partial(bisect_run, launches=1),
        "the same, median of 3": partial(bisect_run, launches=3),
        "five pairs": five_pairs,
    }
    try:
        package = importlib.import_module("git_bayesect")
    except ImportError:
        print("git-bayesect is not installed: its column is left out.")
    else:
        found["git-bayesect"] = partial(bayesect, package=package)
    return found


class Cell(NamedTuple):
    """One place, noise and change, and what the history looks like."""

    place: str
    noise: float
    change: float
    kind: str = "linear"


class Trial(NamedTuple):
    """What one method found in one trial."""

    right: bool
    wrong: bool
    launches: int
    suspects: int


def history_of(draw: random.Random, kind: str) -> History:
    """Return a history: `linear`, `merges`, or either with commits that do not build."""
    commits = merged(draw, COMMITS) if "merges" in kind else linear(COMMITS)
    return History(commits, broken(draw, commits) if "broken" in kind else frozenset())


def trial(method: Method, cell: Cell, seed: int) -> Trial:
    """Return what a method finds; the seed decides machine, history and culprit."""
    draw = random.Random(f"{cell} {seed}")
    history = history_of(draw, cell.kind)
    culprit = draw.randrange(COMMITS)
    machine = Machine(draw, PLACES[cell.place], cell.noise, cell.change, culprit)
    suspects, launches = method(machine, history)
    right = culprit in suspects and cell.change > 0.0
    return Trial(right, bool(suspects) and not right, launches, len(suspects))


def _one(name: str, cell: Cell, seed: int) -> Trial:
    return trial(METHODS[name], cell, seed)


METHODS: dict[str, Method] = {}


def run(pool: Any, names: Sequence[str], cells: Sequence[Cell], seeds: range) -> Iterator[Row]:
    """Yield the trials of each cell and method."""
    for cell in cells:
        for name in names:
            work = [(name, cell, seed) for seed in seeds]
            row = Row(cell, name, pool.starmap(_one, work, chunksize=5))
            print(row.cell, row.method, row.text(), file=sys.stderr, flush=True)
            yield row


class Row(NamedTuple):
    """All trials of a method in a cell."""

    cell: Cell
    method: str
    trials: list[Trial]

    def share(self, field: str) -> float:
        return sum(getattr(each, field) for each in self.trials) / len(self.trials)

    def text(self) -> str:
        right, wrong = self.share("right"), self.share("wrong")
        rest = abs(1.0 - right - wrong)
        shares = "/".join(f"{100 * share:.0f}" for share in (right, wrong, rest))
        return f"{shares}, {self.share('launches'):.0f}"


def table(rows: Sequence[Row]) -> str:
    """Return a Markdown table with a row per cell and a column per method."""
    names = list(dict.fromkeys(row.method for row in rows))
    lines = [f"| history | place | noise | change | {' | '.join(names)} |"]
    lines.append("|---" * (len(names) + 4) + "|")
    for cell in dict.fromkeys(row.cell for row in rows):
        found = {row.method: row.text() for row in rows if row.cell == cell}
        head = f"| {cell.kind} | {cell.place} | {cell.noise:.0%} | +{cell.change:.0%} "
        lines.append(head + "".join(f"| {found.get(name, '')} " for name in names) + "|")
    return "\n".join(lines)


def bars(rows: Sequence[Row]) -> list[str]:
    """Return a line per bar: met or missed, with the figure."""
    ours = [row for row in rows if row.method == "canary"]
    lines = []
    for row in ours:
        if row.cell == Cell("steady", 0.05, 0.10):
            right, launches = row.share("right"), row.share("launches")
            met = right >= 0.95 and launches < BAR_LAUNCHES
            lines.append(
                f"{_met(met)} +10% at 5% noise: {right:.1%} right, {launches:.1f} launches "
                f"(bar 95%, {BAR_LAUNCHES})"
            )
    if ours:
        worst = max(ours, key=lambda row: row.share("wrong"))
        lines.append(
            f"{_met(worst.share('wrong') <= 0.02)} wrong, worst cell: "
            f"{worst.share('wrong'):.1%} ({worst.cell}), bar 2%"
        )
        total = [each for row in ours for each in row.trials]
        wrong = sum(each.wrong for each in total)
        lines.append(f"wrong in all cells: {wrong} of {len(total)} = {wrong / len(total):.2%}")
    return lines


def _met(yes: bool) -> str:
    return "met   " if yes else "MISSED"


def cells_of(chosen: str) -> list[Cell]:
    """Return the cells of a table: `all`, `bar` (one cell), `histories` or `nothing`."""
    if chosen == "bar":
        return [Cell("steady", 0.05, 0.10)]
    if chosen == "histories":
        kinds = ("linear", "linear, broken", "merges", "merges, broken")
        return [Cell("all of it", 0.05, change, kind) for kind in kinds for change in (0.1, 0.2)]
    if chosen == "nothing":
        return [Cell(place, noise, 0.0) for place in PLACES for noise in NOISES]
    return [Cell(p, noise, change) for p in PLACES for noise in NOISES for change in CHANGES]


def main() -> int:
    """Print the table and the bars. Return 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cells", choices=("all", "bar", "histories", "nothing"), default="all")
    parser.add_argument("--trials", type=int, default=300)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--only", help="one method")
    parser.add_argument("--json", type=Path, help="also write each trial here")
    options = parser.parse_args()
    METHODS.update(methods())
    simple = options.cells in ("histories", "nothing")
    names = [options.only] if options.only else ["canary"] if simple else list(METHODS)
    seeds = range(options.first, options.first + options.trials)
    with multiprocessing.get_context("fork").Pool(options.jobs) as pool:
        rows = list(run(pool, names, cells_of(options.cells), seeds))
    if options.json:
        options.json.write_text(json.dumps(rows))
    print(table(rows))
    print("\n".join(bars(rows)))
    return int(any(line.startswith("MISSED") for line in bars(rows)))


if __name__ == "__main__":
    raise SystemExit(main())
