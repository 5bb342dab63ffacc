"""Nights of a fleet in simulation: what they cost, and what they find: `python -m bench.fleet`.

`bench/simulated_fleet.py` has the fleet, its assumptions and the schedules. Nothing ran on a GPU.
Prints Markdown tables: what a night of each plan costs, which GPU types need pairs, and when each
schedule finds a step time that is 5% longer. The seed decides all of it.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence

from scipy import stats

from bench.metric_gates import share
from bench.simulated_fleet import (
    CELLS,
    CHANGE,
    HORIZON,
    KINDS,
    POLICIES,
    TYPES,
    Cell,
    GpuType,
    Shown,
    Subject,
    Verb,
    false_alarms,
    fleet,
    makespan,
    search,
    shown,
)
from canary.campaign.pairs import PROBED_PAIRS
from canary.compare.report import Verdict
from canary.compare.timing.sequential import LOOKS

Rows = Iterator[list[str]]
COST_HEAD = (
    "schedule | GPU type | GPUs | launches | GPU minutes | ends after, minutes "
    "| GPUs in use until then"
)
SHOWN_HEAD = (
    "GPU type | spread of a run | smallest change, one run | smallest change, 8 pairs "
    f"| pairs that show {CHANGE:+.0%} | histories that ask for pairs"
)
FOUND_HEAD = (
    f"GPU type | comparison | {CHANGE:+.0%} fails | no change fails "
    "| GPU minutes per finding, SFT on one GPU"
)
POLICY_HEAD = (
    "schedule | nights, median | nights, 90% "
    f"| {' | '.join(f'90%, {kind}' for kind in KINDS)} | not found in {HORIZON} nights "
    "| GPU minutes, median | false alarms per 100 nights"
)


def table(head: str, rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table. `head`: its columns with `|` between them."""
    lines = [f"| {line} |" for line in (head, *(" | ".join(row) for row in rows))]
    return "\n".join([lines[0], "|---" * (head.count("|") + 1) + "|", *lines[1:]])


def cost_rows(cells: Sequence[Cell], plan: str, verbs: Mapping[GpuType, Verb]) -> Rows:
    """Yield what a night costs, by GPU type and in all, if no pairs end early."""
    total = [0, 0, 0.0, 0.0]
    for gpu, verb in verbs.items():
        mine = [cell for cell in cells if cell.gpu is gpu]
        launches = len(mine) * (2 if verb == "run" else 2 * (max(LOOKS) + PROBED_PAIRS))
        spent = sum(cell.cost(verb) for cell in mine)
        end = makespan(mine, verb, gpu.gpus)
        yield _cost_row(plan, gpu.name, gpu.gpus, launches, spent, end)
        total = [total[0] + gpu.gpus, total[1] + launches, total[2] + spent, max(total[3], end)]
    yield _cost_row(plan, "all", *total)


def _cost_row(
    plan: str, name: str, gpus: float, launches: float, spent: float, end: float
) -> list[str]:
    used = f"{spent / (gpus * end):.0%}"
    return [plan, name, f"{gpus}", f"{launches:,}", f"{spent:,.0f}", f"{end:.0f}", used]


def shown_rows(drawn: Mapping[GpuType, Sequence[Shown]]) -> Rows:
    """Yield the medians of what histories and calibrations show, by GPU type."""
    for gpu, seen in drawn.items():
        run, ab, pairs = (
            statistics.median(values)
            for values in zip(*((one.run, one.ab, one.pairs) for one in seen), strict=True)
        )
        spread = math.hypot(gpu.launch_sd, gpu.night_sd)
        asked = share(sum(one.verb == "ab" for one in seen), len(seen))
        yield [gpu.name, f"{spread:.1%}", f"{run:.1f}%", f"{ab:.1f}%", f"{pairs:.0f}", asked]


def found_rows(trials: int, seed: int) -> Rows:
    """Yield how often one comparison of a cell fails, with the regression and without."""
    for gpu in TYPES:
        draw = random.Random(f"find {seed} {gpu.name}")
        slower, equal = ([Subject(gpu, draw) for _ in range(trials)] for _ in range(2))
        cell = Cell("sft", gpu, 1)
        runs, same = ([one.run(side is slower) for one in side] for side in (slower, equal))
        yield _found_row(cell, "one run", runs, same, cell.cost("run"))
        pairs, even = ([one.ab(side is slower) for one in side] for side in (slower, equal))
        spent = statistics.fmean(cell.cost("ab", count) for _, count in pairs)
        yield _found_row(cell, "pairs", [it for it, _ in pairs], [it for it, _ in even], spent)


def _found_row(
    cell: Cell, what: str, slower: list[Verdict], equal: list[Verdict], spent: float
) -> list[str]:
    found, wrong = slower.count("regression"), equal.count("regression")
    rates = [share(hits, len(slower)) for hits in (found, wrong)]
    return [cell.gpu.name, what, *rates, f"{spent * len(slower) / found:.0f}" if found else "-"]


def quantile(values: Iterable[float], level: float) -> str:
    """Return a quantile with a 95% interval from its order statistics."""
    ordered = sorted(values)
    last = len(ordered) - 1
    low, high = (int(stats.binom.ppf(chance, last + 1, level)) for chance in (0.025, 0.975))
    places = (math.ceil((last + 1) * level) - 1, max(low - 1, 0), min(high, last))
    found = (ordered[place] for place in places)
    return "{} ({} to {})".format(*("never" if math.isinf(it) else f"{it:,.0f}" for it in found))


def rate(events: int, nights: int) -> str:
    """Return events per 100 nights with the 95% interval of a Poisson rate (Garwood 1936)."""
    low = stats.chi2.ppf(0.025, 2 * events) / 2 if events else 0.0
    high = stats.chi2.ppf(0.975, 2 * events + 2) / 2
    return "{:.0f} ({:.0f} to {:.0f})".format(*(100 * it / nights for it in (events, low, high)))


def policy_rows(budget: float, trials: int, nights: int, seed: int) -> Rows:
    """Yield when each policy finds the same regressions, and its alarms without one."""
    cells = fleet()
    for policy in POLICIES:
        found = [search(policy, cells, budget, f"{seed} {trial}") for trial in range(trials)]
        nights_of = {kind: [one.nights for one in found if one.kind == kind] for kind in KINDS}
        taken = [one.nights for one in found]
        yield [
            policy.name,
            *(quantile(taken, level) for level in (0.5, 0.9)),
            *(quantile(some, 0.9) if some else "-" for some in nights_of.values()),
            f"{sum(map(math.isinf, taken))}/{trials}",
            quantile([one.minutes for one in found], 0.5),
            rate(false_alarms(policy, cells, budget, seed, nights), nights),
        ]


def main(given: Sequence[str] | None = None) -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--budgets", type=float, nargs="+", default=[600, 2400])
    parser.add_argument("--trials", type=int, default=200, help="regressions per schedule")
    parser.add_argument("--histories", type=int, default=1000, help="per GPU type")
    parser.add_argument("--nights", type=int, default=100, help="nights without a regression")
    parser.add_argument("--seed", type=int, default=20261126)
    asked = parser.parse_args(given)
    drawn = {}
    for gpu in TYPES:
        draw = random.Random(f"{asked.seed} {gpu.name}")
        drawn[gpu] = [shown(gpu, draw) for _ in range(asked.histories)]
    plans: dict[str, Mapping[GpuType, Verb]] = {
        "one run each": dict.fromkeys(TYPES, "run"),
        "8 pairs each": dict.fromkeys(TYPES, "ab"),
        "pairs by noise": {gpu: statistics.mode(it.verb for it in drawn[gpu]) for gpu in TYPES},
    }
    costs = [row for plan, verbs in plans.items() for row in cost_rows(fleet(), plan, verbs)]
    print(f"Simulated: a night of {CELLS} cells on {sum(gpu.gpus for gpu in TYPES)} GPUs\n")
    print(table(COST_HEAD, costs))
    print(f"\nSimulated: {asked.histories} histories and calibrations per GPU type, medians\n")
    print(table(SHOWN_HEAD, shown_rows(drawn)))
    print(f"\nSimulated: {asked.histories} comparisons per row and column, 95% intervals\n")
    print(table(FOUND_HEAD, found_rows(asked.histories, asked.seed)))
    for budget in asked.budgets:
        print(
            f"\nSimulated: {budget:,.0f} GPU minutes per night, {asked.trials} regressions of "
            f"{CHANGE:+.0%}, {asked.nights} nights without one, 95% intervals\n"
        )
        rows = policy_rows(budget, asked.trials, asked.nights, asked.seed)
        print(table(POLICY_HEAD, rows), flush=True)


if __name__ == "__main__":
    main()
