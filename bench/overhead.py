"""Step time of a measured launch against the bare trainer: `python -m bench.overhead`.

Each process builds the same trainer as the canary does and trains it, with the light probes or
without them, in alternating order (ABBA). The time is the mean wall time between step ends after
warm-up, taken by one clock of this program in both arms. Prints the ratio with a 95% interval from
the pairs' log ratios (Student's t), and what the probes' own calls cost a step.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from scipy import stats

from canary.config.load import load_config

WARMUP = 10


def child(arm: str, config_file: str, folder: str) -> None:
    """One process: prints the mean seconds a step after warm-up, and CPU seconds likewise."""
    import torch
    from transformers import TrainerCallback

    from canary.config.schema import BUILT_IN_STEPS
    from canary.runner.rows import RowFile
    from canary.workload import build_trainer
    from canary.workload.spec import WorkloadSpec

    config = load_config(config_file).config
    torch.set_num_threads(config.threads or torch.get_num_threads())
    place = Path(folder)
    steps = config.max_steps or BUILT_IN_STEPS
    spec = WorkloadSpec(config, place, place, steps)
    trainer = build_trainer(spec)
    marks: list[tuple[float, float]] = []

    class Marks(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, *_: Any, **__: Any) -> None:
            marks.append((time.perf_counter(), time.process_time()))

    trainer.add_callback(Marks())
    own: dict[str, float] = {}
    if arm == "canary":
        from canary.collect.probes.clock import StepClock
        from canary.collect.probes.trainer import TrainerProbe

        for owner, name in (
            (TrainerProbe, "_close_step"),
            (TrainerProbe, "_batch_enters"),
            (StepClock, "switch"),
        ):
            time_calls(owner, name, own)
        rows = RowFile(place / "steps.jsonl")
        TrainerProbe(trainer, rows.append, 0)
    trainer.train()
    steady = marks[WARMUP:]
    count = len(steady) - 1
    wall, cpu = ((steady[-1][i] - steady[0][i]) / count for i in (0, 1))
    costs = {name: seconds / steps for name, seconds in own.items()}
    print(json.dumps({"wall": wall, "cpu": cpu, **costs}))


def time_calls(owner: type, name: str, totals: dict[str, float]) -> None:
    """Adds up the seconds spent inside one method, in `totals`."""
    original = getattr(owner, name)

    def timed(*args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        try:
            return original(*args, **kwargs)
        finally:
            totals[name] = totals.get(name, 0.0) + time.perf_counter() - start

    setattr(owner, name, timed)


def measure(arm: str, config_file: str) -> dict[str, float]:
    """Runs one child."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-m", "bench.overhead", "--child", arm, config_file, folder],
            check=True,
            capture_output=True,
            text=True,
        )
    found: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def interval(ratios: list[float]) -> tuple[float, float, float]:
    """Geometric mean and its 95% interval."""
    logs = [math.log(ratio) for ratio in ratios]
    mean = statistics.fmean(logs)
    half = stats.t.ppf(0.975, len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)


def main() -> None:
    """Prints the ratios of wall and of CPU time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("config", nargs="?", default="configs/dpo_smoke.yaml")
    parser.add_argument("-n", type=int, default=10, help="pairs")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(*arguments.child)
        return
    pairs: list[dict[str, dict[str, float]]] = []
    for number in range(arguments.n):
        order = ("bare", "canary") if number % 2 == 0 else ("canary", "bare")
        pairs.append({arm: measure(arm, arguments.config) for arm in order})
    names = sorted(set(pairs[0]["canary"]) - {"wall", "cpu"})
    costs = {n: statistics.median(pair["canary"][n] for pair in pairs) for n in names}
    parts = ", ".join(f"{name} {1000 * cost:.3f}" for name, cost in costs.items())
    share = statistics.median(
        sum(pair["canary"][n] for n in names) / pair["bare"]["wall"] for pair in pairs
    )
    print(f"own   {1000 * sum(costs.values()):.3f} ms a step ({parts}), {100 * share:.2f}% of bare")
    for figure in ("wall", "cpu"):
        mean, low, high = interval(
            [pair["canary"][figure] / pair["bare"][figure] for pair in pairs]
        )
        bare = statistics.median(pair["bare"][figure] for pair in pairs)
        print(
            f"{figure:<5} ratio {mean:.4f} [{low:.4f}, {high:.4f}] over {len(pairs)} pairs, "
            f"bare {1000 * bare:.1f} ms a step; target 1.02"
        )


if __name__ == "__main__":
    main()
