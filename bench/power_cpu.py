"""Simulated comparisons with CPU time and wall time: `python -m bench.power --cpu smoke`.

Compares records of a CPU with one thread with the real `compare_to_baseline`: exact lane, memory,
both times. Each launch has one factor for its work (CPU time), and one for the slowdown by the
machine's other work (wall time). Spreads are as `bench.aa` measured on two cores. Quiet: wall time
equals CPU time. Busy: wall time of launches varies by 45%, their CPU time by 5%.

`clock` judges only wall time and memory, like versions without CPU time. A change is more work (CPU
and wall time) or more waiting (a sleep, a lock, a file: only wall time).
"""

from __future__ import annotations

import multiprocessing
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bench.power import EXAMPLE, HISTORY, make_record, step_times, upper_bound
from bench.power import Machine as Steps
from canary.compare.report import Comparison
from canary.compare.stats import compare_to_baseline
from canary.compare.thresholds import TIER_THRESHOLDS
from canary.compare.timing.checks import TIMING_GATES
from canary.compare.timing.lane import DECISIONS, FAMILY_BUDGET, Metric, decision_budget, is_settled
from canary.record.folder import load_record
from canary.record.types import Launch, RunRecord

CLOCK: tuple[Metric, ...] = ("step_time_median", "step_time_mean", "max_memory")
WORK = (0.0, 0.10, 0.20, 0.50, 1.0)
WAITING = (0.20, 0.50)
BASE_CPU_S = 0.05


@dataclass(frozen=True)
class Machine:
    """Standard deviations of the logarithms of a launch's factors."""

    name: str
    work: float
    others: float


MACHINES = (Machine("quiet", 0.05, 0.01), Machine("busy", 0.055, 0.45))
DESIGNS = {"1 run, history of 20": 0, "3 pairs": 3, "5 pairs": 5, "auto, up to 8 pairs": -1}


class Arm:
    """The launches of one trial."""

    def __init__(
        self, base: RunRecord, rng: np.random.Generator, count: int, machine: Machine
    ) -> None:
        self._base = base
        self._work = np.exp(rng.normal(0.0, machine.work, size=count))
        others = np.exp(np.abs(rng.normal(0.0, machine.others, size=count)))
        steps = step_times(rng, count, Steps(), 0.0)
        steps *= (BASE_CPU_S / np.median(steps) * self._work * others)[:, None]
        self._steps = steps
        self._memory = 600 * np.exp(rng.normal(0.0, 0.01, size=count))

    def records(
        self, first: int, count: int, work: float = 0.0, waiting: float = 0.0
    ) -> list[RunRecord]:
        """Return the first `count` launches as records; changes are shares of a step's CPU time."""
        made = []
        for i in range(count):
            cpu_s = BASE_CPU_S * self._work[i] * (1 + work)
            waits_s = BASE_CPU_S * waiting
            times = self._steps[i] * (1 + work) + waits_s
            record = make_record(self._base, times, first + i, float(self._memory[i]), 0.0)
            launch = record.launches[0].model_copy(
                update={"cpu_s_per_step": cpu_s, "on_core_step_time_s": cpu_s + waits_s}
            )
            made.append(record.model_copy(update={"launches": [launch]}))
        return made


def template() -> RunRecord:
    """Return the example, from a CPU with one thread, without GPU values."""
    record = load_record(EXAMPLE)
    perf = record.perf.model_copy(update={"gpu_utilization_avg": None})
    return record.model_copy(update={"perf": perf})


def judge(
    pairs: int,
    gates: Sequence[Metric],
    current: Arm,
    baseline: Arm,
    change: dict[str, float],
    tier: str,
) -> Comparison:
    """Return one comparison, or the last decision of a sequential one."""

    def compare(count: int, budget: float) -> Comparison:
        now = current.records(HISTORY, count or 1, **change)
        was = baseline.records(0, count or HISTORY)
        if gates == CLOCK:
            now, was = (
                [record.model_copy(update={"launches": [_bare(record)]}) for record in side]
                for side in (now, was)
            )
        return compare_to_baseline(
            now,
            was,
            TIER_THRESHOLDS[tier],
            paired=count > 0,
            history=count == 0,
            budget=budget,
            gates=gates,
        )

    if pairs >= 0:
        return compare(pairs, FAMILY_BUDGET)
    for count in DECISIONS:
        found = compare(count, decision_budget(count))
        if is_settled(found):
            return found
    return found


def _bare(record: RunRecord) -> Launch:
    return record.launches[0].model_copy(
        update={"cpu_s_per_step": None, "on_core_step_time_s": None}
    )


def run(trials: range, seed: int, tier: str) -> dict[str, Counter]:
    """Return verdicts by `machine | design | gates | kind of change | size`."""
    base = template()
    verdicts: dict[str, Counter] = defaultdict(Counter)
    changes = [("work", size) for size in WORK] + [("waiting", size) for size in WAITING]
    for trial in trials:
        rng = np.random.default_rng([seed, trial])
        for machine in MACHINES:
            for design, pairs in DESIGNS.items():
                count = abs(pairs) if pairs >= 0 else max(DECISIONS)
                baseline = Arm(base, rng, count or HISTORY, machine)
                current = Arm(base, rng, count or 1, machine)
                for name, gates in (("clock", CLOCK), ("clock and CPU time", TIMING_GATES)):
                    for kind, size in changes:
                        found = judge(pairs, gates, current, baseline, {kind: size}, tier)
                        key = f"{machine.name} | {design} | {name} | {kind} | {size}"
                        verdicts[key][found.verdict] += 1
    return verdicts


def run_all(trials: int, jobs: int, seed: int, tier: str) -> dict[str, Counter]:
    """Call `run` in `jobs` processes; their number does not change the result."""
    verdicts: dict[str, Counter] = defaultdict(Counter)
    with multiprocessing.Pool(jobs) as pool:
        parts = [(range(i, trials, jobs), seed, tier) for i in range(jobs)]
        for part in pool.starmap(run, parts):
            for key, counts in part.items():
                verdicts[key] += counts
    return verdicts


def table(verdicts: dict[str, Counter], trials: int) -> str:
    """Return a Markdown table, one row per machine, design and choice of gates."""
    sizes = " | ".join(f"+{size:.0%}" for size in WORK[1:])
    waits = " | ".join(f"+{size:.0%} waiting passes" for size in WAITING)
    lines = [
        "| machine | comparison | judged by | false alarms (95% upper) | equal runs pass "
        f"| {sizes} | {waits} |",
        "|" + "---|" * (5 + len(WORK) - 1 + len(WAITING)),
    ]
    for row in dict.fromkeys(key.rsplit(" | ", 2)[0] for key in verdicts):
        equal = verdicts[f"{row} | work | 0.0"]
        alarms = equal["regression"]
        found = [verdicts[f"{row} | work | {size}"]["regression"] for size in WORK[1:]]
        missed = [verdicts[f"{row} | waiting | {size}"]["pass"] for size in WAITING]
        cells = [
            f"{alarms / trials:.2%} ({upper_bound(alarms, trials):.2%})",
            *(f"{count / trials:.0%}" for count in (equal["pass"], *found, *missed)),
        ]
        lines.append(f"| {row} | {' | '.join(cells)} |")
    return "\n".join(lines)
