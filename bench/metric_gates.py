"""False alarms and detection of gates on simulated runs: `python -m bench.metric_gates`.

`bench/simulated_runs.py` makes the runs; it knows nothing of the gates. Each trial has its own
history of 30 imported runs and one new run of the same kind, healthy or with a fault. All go
through `compare_to_baseline`, as imported records. `GATES` is the config, the same for every kind.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from scipy import stats

from bench.simulated_runs import FAULTS, LABORATORIES, Series, faulty, healthy, history
from canary.compare.checks import SPEED
from canary.compare.report import Comparison
from canary.compare.stats import compare_to_baseline
from canary.config.load import gates_in
from canary.record.curves import Source
from canary.record.step_row import Row
from canary.record.summary import summarise
from canary.record.types import Launch, RunRecord

RUNS = 30
WARMUP = 10
GATES: list[dict[str, Any]] = [
    {"name": "step_time_s", "statistic": "median", "from_step": 10, "limit": "history"},
    {"name": "reward", "statistic": "area", "limit": "history"},
    {"name": "loss", "last": 20, "limit": "history"},
    {"name": "kl", "last": 20, "limit": "history"},
    {"name": "entropy", "last": 20, "limit": "history"},
    {"name": "mismatch", "last": 20, "worse": "both", "limit": "history"},
    {"name": "mismatch", "statistic": "max", "limit": "history"},
]
IN_RL = ("reward", "kl", "entropy", "mismatch", "completion_length")


def record(series: Series, number: int, gates: Sequence[Mapping[str, Any]]) -> RunRecord:
    """Return a simulated run as an imported record."""
    rows: list[Row] = [
        {
            "launch": 1,
            "step": step + 1,
            "wall_s": series["step_time_s"][step],
            "phases": {},
            "loss": series["loss"][step],
            "rl": {name: series[name][step] for name in IN_RL},
        }
        for step in range(len(series["loss"]))
    ]
    bare = RunRecord(
        run_id=f"run-{number:04d}",
        name="simulated",
        timestamp=f"2026-01-{1 + number // 24:02d}T{number % 24:02d}:00:00+00:00",
        status="completed",
        env={"device": {"type": "named", "name": "simulated"}},
        config={"training_type": "import", "metrics": list(gates)},
        source=Source(format="jsonl", preset="verl"),
        launches=[Launch(index=1, status="completed")],
    )
    return summarise(bare, rows, WARMUP)


def judged(new: Sequence[Series], before: Sequence[RunRecord]) -> Comparison:
    """Compare new runs with their history."""
    gates = gates_in(GATES, "the benchmark")
    current = [record(series, RUNS + place, GATES) for place, series in enumerate(new)]
    return compare_to_baseline(current, before, history=True, metrics=gates)


def trial(
    seed: int, laboratory: str, current: int, planted: Sequence[str]
) -> dict[str, dict[str, str]]:
    """Return the status of each gate, and the verdict, of a healthy run and of each fault."""
    before = [
        record(series, place, GATES)
        for place, series in enumerate(history(seed, RUNS, laboratory=laboratory))
    ]
    numbers = range(RUNS, RUNS + current)
    runs = {"healthy": [healthy(seed, number, laboratory=laboratory) for number in numbers]}
    runs |= {
        name: [faulty(seed, name, number, laboratory=laboratory) for number in numbers]
        for name in planted
    }
    found: dict[str, dict[str, str]] = {}
    for name, series in runs.items():
        comparison = judged(series, before)
        of_gates = [check for check in comparison.checks if check.name.startswith("metrics.")]
        found[name] = {check.name: check.status for check in of_gates}
        found[name]["any gate"] = (
            "fail" if any(check.status == "fail" for check in of_gates) else "pass"
        )
        found[name]["other checks"] = (
            "fail"
            if any(c.status == "fail" and c not in of_gates for c in comparison.checks)
            else "pass"
        )
        speeds = {check.status for check in comparison.checks if check.name in SPEED}
        worst = ("fail", "inconclusive", "warn", "pass")
        found[name]["speed"] = next((one for one in worst if one in speeds), "skip")
    return found


def share(hits: int, count: int) -> str:
    """Return a rate with its interval (Clopper and Pearson, 95%)."""
    low = stats.beta.ppf(0.025, hits, count - hits + 1) if hits else 0.0
    high = stats.beta.ppf(0.975, hits + 1, count - hits) if hits < count else 1.0
    return f"{hits}/{count} = {100 * hits / count:.1f}% ({100 * low:.1f} to {100 * high:.1f})"


def by_gate(
    seeds: range, laboratory: str, workers: int, current: int, planted: Sequence[str]
) -> dict[str, Any]:
    """Return how often each gate failed, by what was planted."""
    ask = partial(trial, laboratory=laboratory, current=current, planted=planted)
    failed: dict[str, Counter[str]] = defaultdict(Counter)
    with multiprocessing.Pool(workers) as pool:
        for found in pool.imap_unordered(ask, seeds, chunksize=4):
            for name_of_fault, statuses in found.items():
                failed[name_of_fault].update(name for name, it in statuses.items() if it == "fail")
                failed[name_of_fault].update(
                    f"{status} {name}"
                    for name, status in statuses.items()
                    if status in ("warn", "inconclusive")
                )
    return {planted: dict(counts) for planted, counts in failed.items()}


def main() -> None:
    """Run the benchmark and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", type=int, default=200, help="trials per laboratory")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--current", type=int, default=1, help="new runs per comparison")
    parser.add_argument("--healthy", action="store_true", help="plant no faults")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--json", action="store_true", help="print the counts too")
    given = parser.parse_args()
    for laboratory in LABORATORIES:
        seeds = range(given.first, given.first + given.n)
        faults = () if given.healthy else tuple(FAULTS)
        found = by_gate(seeds, laboratory, given.workers, given.current, faults)
        for planted, counts in found.items():
            named = ", ".join(
                f"{name.removeprefix('metrics.')} {count}"
                for name, count in sorted(counts.items())
                if name.startswith("metrics.")
            )
            print(
                f"{laboratory:11} {planted:20} any gate {share(counts.get('any gate', 0), given.n)}"
                f"; other checks {counts.get('other checks', 0)}; speed fail "
                f"{counts.get('speed', 0)}, inconclusive {counts.get('inconclusive speed', 0)}, "
                f"warn {counts.get('warn speed', 0)}; {named}"
            )
        if given.json:
            print(json.dumps(found))


if __name__ == "__main__":
    main()
