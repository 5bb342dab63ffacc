"""Measurement overhead: `python -m bench.overhead [run|exec|torch|recorder|profiler] [CONFIG]`.

Each pair is the same training without and with the canary, in separate processes and alternating
order (ABBA):

- `run`: the built-in trainer, without and with the collectors of timed steps;
- `exec`: a program that trains the same, started by Python or by `canary exec` without a look;
- `torch`: a plain loop on the embedded model, started in these two ways;
- `recorder`: the same loop, the second time with the Recorder under `canary exec`;
- `profiler`: all of `canary run`, without and with the profiler's default window.

The time is the mean wall time between step ends after warm-up, by this program's clock on both
sides; for `profiler`, the time of the whole command. Prints the ratios with a 95% interval from the
pairs' log ratios (Student's t). Prints also the CPU time per step of the canary's calls, which
other work on the machine changes least.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import math
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from scipy import stats

from canary.config.load import load_config

WARMUP = 10
LOOP_STEPS = 110
CANARY_CALLS = {
    "canary.training.loops.trainer": (("TrainerCollector", "_close_step", "batch_enters"),),
    "canary.training.recorder.collector": (("LoopCollector", "step_begins", "step_ends", "loss"),),
    "canary.training.torch_loop.recording": (
        ("Recording", "called", "backward_begins", "backward_ended", "update_begins"),
        ("Recording", "update_ended"),
    ),
    "canary.training.collectors.clock": (("StepClock", "switch"),),
}
"""The canary's methods that are called in a step: module, class, names."""
ARMS = {
    "run": ("bare", "collected"),
    "exec": ("bare", "watched"),
    "torch": ("loop", "execed"),
    "recorder": ("loop", "recorded"),
    "profiler": ("whole", "profiled"),
}
TARGET, PROFILER_TARGET = 1.02, 1.3
"""Allowed ratio of step time with measuring; allowed ratio of the command's time with profiling."""

Marks = list[tuple[float, float]]


def mark(marks: Marks) -> None:
    """Add a mark at a step's end: wall and CPU seconds."""
    marks.append((time.perf_counter(), time.process_time()))


def train(arm: str, config_file: str, place: Path, marks: Marks) -> None:
    """Train a config; only the arm `collected` attaches the collectors."""
    import torch
    from transformers import TrainerCallback

    from canary.config.trainers import BUILT_IN_STEPS
    from canary.protocol.job import StepFile
    from canary.protocol.spec import WorkloadSpec
    from canary.training.trainers import build_trainer

    config = load_config(config_file).config
    torch.set_num_threads(config.threads or torch.get_num_threads())
    steps = config.max_steps or BUILT_IN_STEPS
    trainer = build_trainer(WorkloadSpec(config, place, place, steps))

    class Marking(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, *_: Any, **__: Any) -> None:
            mark(marks)

    trainer.add_callback(Marking())
    if arm == "collected":
        from canary.training.look import no_look
        from canary.training.loops.trainer import TrainerCollector

        TrainerCollector(trainer, StepFile(place / "steps.jsonl").append, 0, look=no_look())
    trainer.train()


def loop(arm: str, marks: Marks) -> None:
    """Run a plain loop over random tokens on the embedded model; `recorded` adds the Recorder."""
    import torch
    from transformers import AutoModelForCausalLM

    from canary import Recorder
    from canary.inputs.embedded import tiny_dir

    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = AutoModelForCausalLM.from_pretrained(tiny_dir()).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    batches = [torch.randint(3, 300, (8, 64)) for _ in range(LOOP_STEPS)]
    if arm in ("loop", "execed"):
        for ids in batches:
            loss = model(input_ids=ids, labels=ids).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            mark(marks)
        return
    with Recorder("overhead", model=model, optimizer=optimizer) as recorder:
        for ids in batches:
            with recorder.step({"input_ids": ids, "labels": ids}) as step:
                with step.phase("forward"):
                    loss = model(input_ids=ids, labels=ids).loss
                step.loss(loss)
                with step.phase("backward"):
                    loss.backward()
                optimizer.step()
                optimizer.zero_grad()
            mark(marks)


def child(arm: str, config_file: str, folder: str) -> None:
    """Run one process. Print mean wall and CPU seconds per step after warm-up, and call costs."""
    marks: Marks = []
    calls: dict[str, float] = {}
    if arm in ("collected", "watched", "recorded", "execed"):
        time_canary_calls(calls, arm)
    if arm in ("loop", "recorded", "execed"):
        loop(arm, marks)
    else:
        train(arm, config_file, Path(folder), marks)
    steady = marks[WARMUP:]
    count = len(steady) - 1
    wall, cpu = ((steady[-1][i] - steady[0][i]) / count for i in (0, 1))
    costs = {name: seconds / len(marks) for name, seconds in calls.items()}
    print("\nOVERHEAD " + json.dumps({"wall": wall, "cpu": cpu, **costs}), flush=True)


def time_canary_calls(totals: dict[str, float], arm: str) -> None:
    """Add up the CPU seconds inside the canary's methods; nested calls count in the outer one."""
    inside: list[str] = []

    @contextlib.contextmanager
    def timed(name: str) -> Iterator[None]:
        inside.append(name)
        start = time.thread_time()
        try:
            yield
        finally:
            inside.pop()
            if not inside:
                totals[name] = totals.get(name, 0.0) + time.thread_time() - start

    def wrap(owner: Any, name: str) -> None:
        original = getattr(owner, name)

        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with timed(name):
                return original(*args, **kwargs)

        setattr(owner, name, wrapper)

    follows = {"recorded": "recorder", "execed": "torch_loop"}.get(arm, "loops")
    for module, classes in CANARY_CALLS.items():
        if f".{follows}." not in module and "clock" not in module:
            continue
        loaded = importlib.import_module(module)
        for class_name, *names in classes:
            for name in names:
                wrap(getattr(loaded, class_name), name)


def measure(arm: str, config_file: str) -> dict[str, float]:
    """Run one child process and return its figures."""
    if arm in ARMS["profiler"]:
        return whole_run(config_file, arm == "profiled")
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, "-m", "bench.overhead", "--child", arm, config_file, folder]
        if arm in ("watched", "execed", "recorded"):
            options = ["--name", "overhead", "-o", f"{folder}/out"]
            options += ["--set", "look_steps=0"]
            words = [sys.executable, "-m", "canary.cli", "exec", *options, "--", *words]
        done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{arm} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    line = next(line for line in done.stdout.splitlines() if line.startswith("OVERHEAD "))
    found: dict[str, float] = json.loads(line.removeprefix("OVERHEAD "))
    return found


def whole_run(config_file: str, profiled: bool) -> dict[str, float]:
    """Return wall and CPU seconds of one `canary run`, and its peak memory in MB."""
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, "-m", "canary.cli", "run", config_file, "-o", folder]
        words += ["--set", f"profiler.enabled={str(profiled).lower()}"]
        start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(words, capture_output=True, text=True)
        wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
        if done.returncode:
            raise SystemExit(f"canary run ended with {done.returncode}:\n{done.stderr}")
        (record,) = (json.loads(path.read_text()) for path in Path(folder).glob("*/metrics.json"))
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"wall": wall, "cpu": cpu, "memory": record["perf"]["max_mem_mb"]}


def report_whole(pairs: list[dict[str, dict[str, float]]], bare_arm: str, canary_arm: str) -> None:
    """Print the ratios of the command's time and of its peak memory."""
    for figure, unit in (("wall", "s"), ("cpu", "s"), ("memory", "MB")):
        ratios = [pair[canary_arm][figure] / pair[bare_arm][figure] for pair in pairs]
        mean, low, high = interval(ratios)
        bare = statistics.median(pair[bare_arm][figure] for pair in pairs)
        target = f"; target {PROFILER_TARGET}" if unit == "s" else ""
        print(
            f"{figure:<6} ratio {mean:.3f} [{low:.3f}, {high:.3f}] over {len(pairs)} pairs, "
            f"without {bare:.1f} {unit}{target}"
        )


def interval(ratios: list[float]) -> tuple[float, float, float]:
    """Return the geometric mean and its 95% interval."""
    logs = [math.log(ratio) for ratio in ratios]
    mean = statistics.fmean(logs)
    half = stats.t.ppf(0.975, len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)


def report(pairs: list[dict[str, dict[str, float]]], bare_arm: str, canary_arm: str) -> None:
    """Print the ratios of wall and CPU time, and the cost of the canary's calls."""
    names = sorted(set().union(*(pair[canary_arm] for pair in pairs)) - {"wall", "cpu"})
    costs = {n: statistics.median(pair[canary_arm].get(n, 0.0) for pair in pairs) for n in names}
    parts = ", ".join(f"{name} {1000 * cost:.3f}" for name, cost in costs.items())
    share = statistics.median(
        sum(pair[canary_arm].get(n, 0.0) for n in names) / pair[bare_arm]["cpu"] for pair in pairs
    )
    print(
        f"calls {1000 * sum(costs.values()):.3f} ms of CPU per step ({parts}), "
        f"{100 * share:.2f}% of bare"
    )
    for figure in ("wall", "cpu"):
        ratios = [pair[canary_arm][figure] / pair[bare_arm][figure] for pair in pairs]
        mean, low, high = interval(ratios)
        bare = statistics.median(pair[bare_arm][figure] for pair in pairs)
        print(
            f"{figure:<5} ratio {mean:.4f} [{low:.4f}, {high:.4f}], median "
            f"{statistics.median(ratios):.4f} over {len(pairs)} pairs, "
            f"bare {1000 * bare:.1f} ms per step; target {TARGET}"
        )


def main() -> None:
    """Run the pairs of one comparison."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="?", default="run", choices=ARMS)
    parser.add_argument("config", nargs="?", default="configs/dpo_smoke.yaml")
    parser.add_argument("-n", type=int, default=10, help="pairs")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(*arguments.child)
        return
    arms = ARMS[arguments.what]
    pairs: list[dict[str, dict[str, float]]] = []
    for number in range(arguments.n):
        order = arms if number % 2 == 0 else tuple(reversed(arms))
        pairs.append({arm: measure(arm, arguments.config) for arm in order})
    (report_whole if arguments.what == "profiler" else report)(pairs, *arms)


if __name__ == "__main__":
    main()
