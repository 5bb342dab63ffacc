"""The speed ladder as a table: `python -m bench.ladder [CONFIG] [-n ROUNDS] [--levels NAMES]`.

`--tolerances [TRAINER ...]` instead measures how far rounding moves the signals of the guards.
Over several seeds it compares equal runs, harmless changes (threads, attention kernel,
micro-batches, optimizer kernel, padding, every level) and small faults that a guard must catch. It
prints the largest relative difference per kind of signal. docs/ladder.md shows the results.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from canary.cli.terminal import sayer
from canary.config.load import load_config
from canary.errors import CanaryError
from canary.ladder.guard import GAP, RANK, compare
from canary.ladder.report import result_text
from canary.ladder.run import LadderRequest, run
from canary.ladder.site import Site
from canary.ladder.switches import Job, Rounding, Settings, this_machine
from canary.record.exact import Exact

SEEDS = (42, 43, 44)
BENIGN: dict[str, Settings] = {
    "again": {},
    "two threads": {"threads": 2},
    "SDPA": {"attn_implementation": "sdpa"},
    "smaller micro-batches": {"batch_size": 2, "gradient_accumulation_steps": 4},
    "one micro-batch": {"batch_size": 8, "gradient_accumulation_steps": 1},
    "fused optimizer": {"speed.optimizer": "fused"},
}
BFLOAT16: dict[str, Settings] = {
    "bfloat16": {"dtype": "bfloat16"},
    "bfloat16, SDPA": {"dtype": "bfloat16", "attn_implementation": "sdpa"},
    "bfloat16, one micro-batch": {"dtype": "bfloat16", **BENIGN["one micro-batch"]},
}
FAULTS: dict[str, dict[str, Settings]] = {
    "sft": {
        "learning rate +1%": {"learning_rate": 5.05e-4},
        "weight decay 0.01": {"trainer_args.weight_decay": 0.01},
        "beta2 0.99": {"trainer_args.adam_beta2": 0.99},
    },
    "dpo": {
        "beta +1%": {"beta": 0.101},
        "learning rate +1%": {"learning_rate": 5.05e-5},
        "weight decay 0.01": {"trainer_args.weight_decay": 0.01},
    },
    "grpo": {
        "no KL": {"beta": 0.0},
        "learning rate +1%": {"learning_rate": 1.01e-5},
        "temperature 1.01 in the loss": {"temperature": 1.01},
    },
    "ppo": {
        "no KL penalty": {"ppo.init_kl_coef": 0.0},
        "gamma 0.99": {"ppo.gamma": 0.99},
        "lambda 1": {"ppo.lam": 1.0},
        "value loss +10%": {"ppo.vf_coef": 0.11},
        "clipping at 0.1": {"ppo.cliprange": 0.1},
        "learning rate +1%": {"learning_rate": 1.01e-5},
        "temperature 1.01 in the loss": {"temperature": 1.01},
    },
}
"""Small changes of learning; in a replay the completions stay the same."""
KINDS = ("loss", "gradient", "generation", "metric")
_GRADIENT = ("grad norm", "first update")
Sizes = dict[str, tuple[float, str]]
"""The largest relative difference of each kind, with its signal."""


def main() -> None:
    """Run one ladder, or measure the tolerances."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("config", nargs="*", help="a config; trainers with --tolerances")
    parser.add_argument("-n", "--rounds", type=int, default=5)
    parser.add_argument("--levels")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--tolerances", action="store_true")
    parser.add_argument("--seeds", type=int, default=len(SEEDS))
    given = parser.parse_args()
    try:
        if given.tolerances:
            for trainer in given.config or list(FAULTS):
                tolerances(trainer, SEEDS[: given.seeds], given.set)
            return
        config = Path(given.config[0] if given.config else "configs/ladder_ppo.yaml")
        request = LadderRequest(config, given.levels, given.rounds, tuple(given.set))
        print(result_text(run(request, sayer(False)), "markdown"))
    except CanaryError as error:
        sys.exit(f"{error}")


def tolerances(trainer: str, seeds: tuple[int, ...], settings: list[str]) -> None:
    """Print how much each change of one trainer differs from the baseline level."""
    found: dict[tuple[str, str], Sizes] = {}
    for seed in seeds:
        for key, differences in _seed(trainer, seed, settings).items():
            kept = found.setdefault(key, differences)
            found[key] = {kind: max(size, kept[kind]) for kind, size in differences.items()}
    print(
        f"\n{trainer}, {len(seeds)} seeds\n\n| | change | loss | grad norm | generation | metrics |"
    )
    print("|---|---|---:|---:|---:|---:|")
    for (group, name), differences in found.items():
        *cells, (metric, which) = [differences[kind] for kind in KINDS]
        shown = " | ".join(f"{size:.1e}" for size, _ in cells)
        print(f"| {group} | {name} | {shown} | {metric:.1e} {which} |", flush=True)


def _seed(trainer: str, seed: int, settings: list[str]) -> dict[tuple[str, str], Sizes]:
    with tempfile.TemporaryDirectory() as folder:
        config_file = Path(folder, "canary.yaml")
        config_file.write_text(f"name: tolerances\ntraining_type: {trainer}\n")
        overrides = ("max_steps=20", f"seed={seed}", *settings)
        config = load_config(config_file, overrides).config
        job = Job(config, this_machine(config))
        launch = Site(job, Path(folder), sayer(True), source=config_file, overrides=overrides)
        off = job.baseline
        baseline = launch.guard("baseline", off, records=True)
        if baseline.record is None or baseline.problem:
            raise SystemExit(f"the baseline of {trainer} failed: {baseline.problem}")
        every: dict[str, Any] = {}
        for switch in job.switches:
            if not job.left_out(switch) and switch.rounding == "float32":
                every |= switch.options(config, job.machine)[0][0]
        every.pop("speed.compile", None)
        groups: dict[str, Mapping[str, Settings]] = {
            "benign": BENIGN | {"every switch in float32": every},
            "bfloat16": BFLOAT16 | {"every switch, bfloat16": {**every, "dtype": "bfloat16"}},
            "fault": FAULTS.get(trainer, {}),
        }
        found = {}
        for group, changes in groups.items():
            for name, change in changes.items():
                ran = launch.guard("changed", {**off, **change})
                if ran.record is None or ran.problem:
                    print(f"{trainer}, {name}: {ran.problem}", file=sys.stderr)
                    continue
                found[group, name] = _largest(
                    baseline.record.exact, ran.record.exact, trainer, group
                )
                print(f"{trainer} {seed} {name} {found[group, name]}", file=sys.stderr, flush=True)
        return found


def _largest(baseline: Exact, changed: Exact, trainer: str, group: str) -> Sizes:
    """Return the largest relative difference of each kind of signal."""
    found: Sizes = dict.fromkeys(KINDS, (0.0, ""))
    rounding: Rounding = "bfloat16" if group == "bfloat16" else "float32"
    for one in compare(baseline, changed, trainer, rounding).deviations:
        if one.signal == RANK:
            continue  # its tolerance follows from the number of tokens
        known = {"loss": "loss", GAP: "generation"} | dict.fromkeys(_GRADIENT, "gradient")
        kind = known.get(one.signal, "metric")
        found[kind] = max(found[kind], (one.relative, one.signal))
    return found


if __name__ == "__main__":
    main()
