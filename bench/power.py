"""False alarms and detection of the real comparison on simulated pairs: `python -m bench.power`.

Simulated step times are lognormal with 5% jitter, lag-1 correlation 0.4, and 1% outliers three
times as long. Each launch has a shift, whose standard deviation each trial draws uniformly from 3
to 5%. Each trial builds full records from a real one (`baselines/examples`), exact lane included,
for `compare_to_baseline`. One trial judges every size of change with the same noise.

A cell is a number of pairs, or one run against a history of 20. It has a noise model of 30 pair
differences or none, and fixed or adaptive sensitivity. `one` judges only the median step time with
the whole error budget, `family` all gates; `auto` decides after 3, 5 and 8 pairs in turn.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy import stats

from canary.compare.report import Comparison
from canary.compare.stats import compare_to_baseline
from canary.compare.thresholds import TIER_THRESHOLDS, Thresholds
from canary.compare.timing.checks import TIMING_GATES
from canary.compare.timing.lane import DECISIONS, FAMILY_BUDGET, decision_budget, is_settled
from canary.compare.timing.noise import MetricNoise, NoiseModel
from canary.record.folder import load_record
from canary.record.summary import distribution
from canary.record.types import Launch, RunRecord

EXAMPLE = Path(__file__).parents[1] / "baselines" / "examples" / "sft_smoke.json"
STEPS, BASE_S, CORRELATION, OUTLIERS, OUTLIER_SIZE = 90, 0.45, 0.4, 0.01, 3.0
HISTORY, POOL = 20, 30
EFFECTS = (0.0, 0.03, 0.05, 0.10, 0.15, 0.20)
ONE = ("step_time_median",)

Array = np.ndarray


@dataclass(frozen=True)
class Machine:
    """The noise of a simulated machine."""

    jitter: float = 0.05
    shift: tuple[float, float] = (0.03, 0.05)
    memory: float = 0.001


QUIET = Machine(jitter=0.02, shift=(0.005, 0.005))


def step_times(rng: np.random.Generator, launches: int, machine: Machine, sd: float) -> Array:
    """Return simulated seconds, shape launches x STEPS."""
    noise = np.empty((launches, STEPS))
    fresh = rng.normal(size=(launches, STEPS))
    noise[:, 0] = fresh[:, 0]
    for step in range(1, STEPS):
        noise[:, step] = (
            CORRELATION * noise[:, step - 1] + math.sqrt(1 - CORRELATION**2) * fresh[:, step]
        )
    shift = rng.normal(0.0, sd, size=(launches, 1))
    outlier = np.where(rng.random((launches, STEPS)) < OUTLIERS, OUTLIER_SIZE, 1.0)
    return BASE_S * np.exp(machine.jitter * noise + shift) * outlier


def template() -> RunRecord:
    """Return the example as a GPU's record, so that every documented key has a value."""
    record = load_record(EXAMPLE)
    gpu = {"name": "simulated", "memory_bytes": 80 << 30, "mig": False, "index": 0, "uuid": "x"}
    env = record.env | {"gpus": [gpu], "device": {"type": "cuda", "name": "simulated"}}
    perf = record.perf.model_copy(update={"max_mem_kind": "device"})
    return record.model_copy(update={"env": env, "perf": perf})


def make_record(
    base: RunRecord, times: Array, number: int, memory_mb: float, utilization: float
) -> RunRecord:
    """Return a full record of one launch with these step times."""
    found = distribution(float(value) for value in times)
    tokens = base.tokens["input_tokens"] / len(base.stability.loss_values)
    launch = Launch(
        index=1,
        status="completed",
        steps=len(base.stability.loss_values),
        mean_step_time_s=found.mean,
        median_step_time_s=found.median,
        tokens_per_sec=tokens / found.mean,
    )
    perf = base.perf.model_copy(
        update={
            "step_time": found,
            "approx_tokens_per_sec": tokens / found.mean,
            "max_mem_mb": memory_mb,
            "gpu_utilization_avg": utilization,
        }
    )
    scale = found.mean / base.perf.step_time.mean
    clock = f"{number // 3600:02d}:{number // 60 % 60:02d}:{number % 60:02d}"
    return base.model_copy(
        update={
            "run_id": f"simulated-{number:06d}",
            "timestamp": f"2026-01-01T{clock}",
            "perf": perf,
            "launches": [launch],
            "phases": {name: scale * value for name, value in base.phases.items()},
        }
    )


class Arm:
    """The launches of one trial; `records` applies a change of speed."""

    def __init__(
        self, base: RunRecord, rng: np.random.Generator, count: int, machine: Machine, sd: float
    ) -> None:
        self._base = base
        self._times = step_times(rng, count, machine, sd)
        self._memory = 40_000 * np.exp(rng.normal(0.0, machine.memory, size=count))
        self._utilization = 90 + rng.normal(0.0, 2.0, size=count)

    def records(self, first: int, count: int, effect: float = 0.0) -> list[RunRecord]:
        """Return the first `count` launches as records, numbered from `first`."""
        return [
            make_record(
                self._base,
                self._times[i] * (1 + effect),
                first + i,
                float(self._memory[i]),
                float(self._utilization[i]),
            )
            for i in range(count)
        ]


def noise_model(rng: np.random.Generator, machine: Machine, sd: float) -> NoiseModel:
    """Return a noise model as calibrated on this machine: 30 pair differences per metric."""
    a, b = (step_times(rng, POOL, machine, sd) for _ in range(2))
    pairs = {
        "step_time_median": np.log(np.median(a, axis=1)) - np.log(np.median(b, axis=1)),
        "step_time_mean": np.log(a.mean(axis=1)) - np.log(b.mean(axis=1)),
        "max_memory": rng.normal(0.0, math.sqrt(2) * machine.memory, size=POOL),
    }
    metrics = {}
    for name, differences in pairs.items():
        pair_sd = float(np.sqrt(np.mean(differences**2)))
        metrics[name] = MetricNoise(
            run_sd=pair_sd / math.sqrt(2), run_df=POOL, pair_sd=pair_sd, pair_df=POOL
        )
    return NoiseModel(
        canary="simulated", machine_key="simulated", created="", runs=2 * POOL, metrics=metrics
    )


@dataclass(frozen=True)
class Design:
    """The number of runs and the noise model of a comparison."""

    name: str
    pairs: int = 0
    pooled: bool = False
    auto: bool = False


DESIGNS = (
    Design("1 run, history of 20"),
    *(Design(f"{n} pair{'s' if n > 1 else ''}", n) for n in (1, 3, 5, 8)),
    *(Design(f"{n} pair{'s' if n > 1 else ''}, noise model", n, True) for n in (1, 3, 5, 8)),
    Design("auto, up to 8 pairs", 8, False, True),
    Design("auto, up to 8 pairs, noise model", 8, True, True),
)


@dataclass(frozen=True)
class Setting:
    """Thresholds and gates of a comparison, and the changes to simulate."""

    name: str
    thresholds: Thresholds
    effects: tuple[float, ...]
    family: bool = False


def settings(changes: tuple[float, ...]) -> Iterator[Setting]:
    """Yield the default tier, fixed and adaptive, with all changes; other tiers with no change."""
    for tier, thresholds in TIER_THRESHOLDS.items():
        effects = changes if tier == "default" else (0.0,)
        yield Setting(f"one, {tier}", thresholds, effects)
        yield Setting(f"family, {tier}", thresholds, effects, family=True)
    adaptive = TIER_THRESHOLDS["default"].model_copy(update={"sensitivity": "adaptive"})
    yield Setting("one, adaptive", adaptive, changes)
    yield Setting("family, adaptive", adaptive, changes, family=True)


def judge(
    design: Design, setting: Setting, current: Arm, baseline: Arm, effect: float, noise: NoiseModel
) -> Comparison:
    """Return one comparison, or the last decision of a sequential one."""

    def compare(count: int, budget: float) -> Comparison:
        """Compare the first `count` pairs; 0 means one run against the history."""
        was = baseline.records(0, count or HISTORY)
        now = current.records(HISTORY, count or 1, effect)
        return compare_to_baseline(
            now,
            was,
            setting.thresholds,
            paired=count > 0,
            history=count == 0,
            noise=noise if design.pooled else None,
            budget=budget,
            gates=TIMING_GATES if setting.family else ONE,  # type: ignore[arg-type]
        )

    if not design.auto:
        return compare(design.pairs, FAMILY_BUDGET)
    for count in DECISIONS:
        found = compare(count, decision_budget(count))
        if is_settled(found):
            return found
    return found


def run(
    trials: range,
    seed: int,
    designs: Sequence[Design],
    machine: Machine,
    changes: tuple[float, ...] = EFFECTS,
) -> dict[str, Counter]:
    """Return verdicts by `design | setting | effect`; each trial has a separate random sequence."""
    base = template()
    verdicts: dict[str, Counter] = defaultdict(Counter)
    for trial in trials:
        rng = np.random.default_rng([seed, trial])
        sd = float(rng.uniform(*machine.shift))
        noise = noise_model(rng, machine, sd)
        for design in designs:
            baseline = Arm(base, rng, design.pairs or HISTORY, machine, sd)
            current = Arm(base, rng, design.pairs or 1, machine, sd)
            for setting in settings(changes):
                for effect in setting.effects:
                    found = judge(design, setting, current, baseline, effect, noise)
                    verdicts[f"{design.name} | {setting.name} | {effect}"][found.verdict] += 1
    return verdicts


def run_all(
    trials: int,
    jobs: int,
    seed: int,
    designs: Sequence[Design],
    machine: Machine,
    changes: tuple[float, ...] = EFFECTS,
) -> dict[str, Counter]:
    """Call `run` in `jobs` processes; their number does not change the result."""
    parts = [(range(i, trials, jobs), seed, designs, machine, changes) for i in range(jobs)]
    verdicts: dict[str, Counter] = defaultdict(Counter)
    with multiprocessing.Pool(jobs) as pool:
        for part in pool.starmap(run, parts):
            for key, counts in part.items():
                verdicts[key] += counts
    return verdicts


def fixed_gate(trials: int, seed: int, machine: Machine) -> list[str]:
    """Return Markdown rows of the gate to beat. It compares the mean step times of two runs: red if
    time rises, or tokens per second fall, by more than the tier's tolerance."""
    rng = np.random.default_rng(seed)
    changes = []
    for _ in range(trials):
        sd = float(rng.uniform(*machine.shift))
        now, was = (step_times(rng, 1, machine, sd).mean() for _ in range(2))
        changes.append(now / was)
    ratios = np.array(changes)
    rows = []
    for tier, thresholds in TIER_THRESHOLDS.items():
        slower = 1 + thresholds.max_step_time_increase_pct / 100
        fewer_tokens = 1 / (1 - thresholds.max_tps_drop_pct / 100)
        limit = min(slower, fewer_tokens)
        shares = [float(((1 + effect) * ratios > limit).mean()) for effect in EFFECTS]
        alarms = round(shares[0] * trials)
        found = " | ".join(f"{share:.0%}" for share in shares[1:])
        rows.append(
            f"| fixed threshold, 1 run against 1 | {tier} "
            f"| {shares[0]:.2%} ({upper_bound(alarms, trials):.2%}) "
            f"| {1 - shares[0]:.0%} | {found} |"
        )
    return rows


def upper_bound(alarms: int, trials: int) -> float:
    """Return the one-sided 95% upper confidence bound of a rate (Clopper and Pearson 1934)."""
    return 1.0 if alarms >= trials else float(stats.beta.ppf(0.95, alarms + 1, trials - alarms))


BARS: tuple[tuple[str, str, float, float], ...] = (
    ("1 run, history of 20", "one, adaptive", 0.15, 0.62),
    ("1 run, history of 20", "one, adaptive", 0.20, 0.87),
    ("3 pairs, noise model", "one, adaptive", 0.10, 0.42),
    ("5 pairs, noise model", "one, adaptive", 0.10, 0.68),
    ("8 pairs, noise model", "one, adaptive", 0.10, 0.87),
    ("3 pairs, noise model", "one, adaptive", 0.15, 0.77),
)
PASS_BARS: tuple[tuple[str, str, float], ...] = (
    ("1 run, history of 20", "one, default", 0.65),
    ("5 pairs", "one, default", 0.85),
)
QUIET_BAR = ("5 pairs, noise model", "one, adaptive", 0.02, 0.92)


def table(verdicts: dict[str, Counter], trials: int) -> str:
    """Return a Markdown table, one row per design and setting."""
    lines = [
        "| comparison | judged | false alarms (95% upper) | healthy pass "
        "| +3% | +5% | +10% | +15% | +20% |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    rows = dict.fromkeys(key.rsplit(" | ", 1)[0] for key in verdicts)
    for row in rows:
        healthy = verdicts[f"{row} | 0.0"]
        alarms = healthy["regression"]
        cells = [
            f"{alarms / trials:.2%} ({upper_bound(alarms, trials):.2%})",
            f"{healthy['pass'] / trials:.0%}",
        ]
        for effect in EFFECTS[1:]:
            found = verdicts.get(f"{row} | {effect}")
            cells.append(f"{found['regression'] / trials:.0%}" if found else "")
        lines.append(f"| {row} | {' | '.join(cells)} |")
    return "\n".join(lines)


def bars(verdicts: dict[str, Counter], quiet: dict[str, Counter], trials: int) -> list[str]:
    """Return a line per bar: met or missed, with the figure."""
    lines = []
    worst = max(
        (upper_bound(found["regression"], trials), key)
        for key, found in {**verdicts, **quiet}.items()
        if key.endswith(" | 0.0") and "one," in key and "auto" not in key
    )
    lines.append(f"{_met(worst[0] <= 0.01)} false alarms, worst cell: {worst[0]:.2%} ({worst[1]})")
    for design, setting, bar in PASS_BARS:
        share = verdicts[f"{design} | {setting} | 0.0"]["pass"] / trials
        lines.append(f"{_met(share >= bar)} healthy pass, {design}: {share:.1%}, bar {bar:.0%}")
    for source, (design, setting, effect, bar) in [
        *((verdicts, bar) for bar in BARS),
        (quiet, QUIET_BAR),
    ]:
        share = source[f"{design} | {setting} | {effect}"]["regression"] / trials
        where = "quiet machine, " if source is quiet else ""
        lines.append(
            f"{_met(share >= bar)} {where}{design}, +{effect:.0%}: {share:.1%}, bar {bar:.0%}"
        )
    return lines


def _met(yes: bool) -> str:
    return "met   " if yes else "MISSED"


def main() -> int:
    """Print the table and the bars. Return 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=20261121)
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--json", type=Path, help="also write the counts here")
    parser.add_argument("--cpu", metavar="TIER", help="judge CPU time too: bench.power_cpu")
    arguments = parser.parse_args()
    many = (arguments.trials, arguments.jobs)
    if arguments.cpu:
        from bench import power_cpu

        judged = power_cpu.run_all(*many, arguments.seed + 3, arguments.cpu)
        print(power_cpu.table(judged, arguments.trials))
        return 0
    verdicts = run_all(*many, arguments.seed, DESIGNS, Machine())
    quiet_designs = [design for design in DESIGNS if design.pairs == 5]
    quiet = run_all(*many, arguments.seed + 1, quiet_designs, QUIET, (0.0, 0.02))
    print(table(verdicts, arguments.trials))
    print("\n".join(fixed_gate(10 * arguments.trials, arguments.seed + 2, Machine())))
    found = bars(verdicts, quiet, arguments.trials)
    print("\n" + "\n".join(found))
    if arguments.json:
        counts = {"trials": arguments.trials, "main": verdicts, "quiet": quiet}
        arguments.json.write_text(json.dumps(counts, indent=1))
    return int(any(line.startswith("MISSED") for line in found))


if __name__ == "__main__":
    raise SystemExit(main())
