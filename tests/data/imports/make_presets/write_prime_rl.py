"""prime-rl: its `metrics.jsonl` by its own file monitor, and the console in the form of its logger.

A run of online RL: trainer and orchestrator append to the same file.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import sys
from pathlib import Path
from types import SimpleNamespace

from checkout import clone
from common import GIB, Output, around, falling, fresh, write_expected
from standins import stand_in

STEPS = 10
GPUS = 4
COMMIT = "559b44772e471d1538537b8805cc77f3824a5e64"


def spread(name: str, mean: float, wide: float) -> dict[str, float]:
    """What `Tensors.compute_stats` makes of one tensor."""
    return {
        f"{name}/mean": mean,
        f"{name}/median": mean * 0.98,
        f"{name}/std": wide,
        f"{name}/min": mean - 2 * wide,
        f"{name}/max": mean + 2 * wide,
    }


def trainer_rows(step: int, of: dict[str, list[float]]) -> list[dict[str, float]]:
    """The rows of one step, in the order in which `trainer/rl/train.py` logs them."""
    index = step - 1
    entropy, mismatch = of["entropy"][index], of["mismatch"][index]
    rate = of["rate"][index]
    return [
        {
            "perf/throughput": rate,
            "perf/throughput_per_gpu": rate / GPUS,
            "perf/mfu": 31.2 * rate / 32000,
            "perf/peak_memory": of["memory"][index],
            "step": step,
        },
        {"optim/lr": 1e-06, "step": step, "optim/grad_norm": of["norm"][index]},
        {
            **spread("loss", of["loss"][index], 0.002),
            "entropy/all/mean": entropy,
            "entropy/all/std": 0.2,
            "entropy/all/max": entropy + 2.0,
            "mismatch_kl/all/mean": mismatch,
            "mismatch_kl/all/max": mismatch * 40,
            "is_masked/mean": 0.0004,
            "is_masked/max": 1.0,
            "kl_ent_ratio/mean": mismatch / entropy,
            "step": step,
        },
        {
            "time/step": of["time"][index],
            "time/wait_for_batch": of["time"][index] * 0.4,
            "time/load_data": 0.02,
            "time/broadcast_weights": 1.1,
            "time/save_ckpt": 0,
            "time/forward_backward": of["time"][index] * 0.5,
            "step": step,
        },
        {"system/ckpt_disk_free": 812.5, "step": step},
    ]


def orchestrator_row(step: int, of: dict[str, list[float]]) -> dict[str, float]:
    """The row of one step as `orchestrator.py` puts it together."""
    index = step - 1
    reward, length = of["reward"][index], of["length"][index]
    row: dict[str, float] = {}
    for subset, loss in (("all", 0.98), ("effective", 1.0)):
        prefix = f"train/agg/{subset}"
        row[f"{prefix}/num_input_tokens/mean"] = 141.0
        row[f"{prefix}/num_output_tokens/mean"] = length * loss
        row[f"{prefix}/num_turns/mean"] = 1.0
        if subset == "all":
            row[f"{prefix}/has_error/mean"] = 0.02
        row[f"{prefix}/agent/reward/mean"] = reward * loss
        row[f"{prefix}/agent/reward/std"] = 0.48
        row[f"{prefix}/agent/is_truncated/mean"] = 0.03125
        row[f"train/reverse-text/{subset}/agent/reward/mean"] = reward * loss
    return row | {
        "progress/tokens": 41021,
        "progress/total_tokens": 41021 * step,
        "time/step": of["orchestrator"][index],
        "time/pack": 0.04,
        "time/save_ckpt": 0.0,
        "time/wait_for_policy": 2.2,
        "step": step,
        "off_policy/mean": 1.0,
        "off_policy/max": 1.0,
        "batch/reverse-text": 1.0,
    }


def main() -> None:
    stand_in("pydantic_config", "verifiers", "prime_cli", "wandb_workspaces", "wandb_gql")
    sys.path += [
        str(clone("prime-rl") / "src"),
        str(clone("prime-rl") / "packages/prime-rl-configs/src"),
    ]
    from prime_rl.monitors.file import FileMonitor
    from prime_rl.utils import logger as prime_logger

    folder = fresh("prime-rl")
    logs = {"trainer": io.StringIO(), "orchestrator": io.StringIO()}
    loggers = {}
    for part, kept in logs.items():
        with contextlib.redirect_stdout(kept):
            prime_logger._LOGGER = None  # a process of its own
            loggers[part] = prime_logger.setup_logger("info")
    logger, orchestrator_logger = loggers["trainer"], loggers["orchestrator"]
    monitor = FileMonitor.__new__(FileMonitor)
    monitor.config = SimpleNamespace(path=Path("metrics.jsonl"))
    monitor.logger = SimpleNamespace(info=lambda text: None, warning=orchestrator_logger.warning)
    asyncio.run(monitor.init(folder))
    of = {
        "loss": falling("prime loss", STEPS, 0.004, 0.001, 0.3),
        "norm": falling("prime norm", STEPS, 0.9, 0.3, 0.1),
        "entropy": falling("prime entropy", STEPS, 0.45, 0.3),
        "mismatch": around("prime mismatch", STEPS, 0.0009, 0.1),
        "rate": around("prime rate", STEPS, 32000.0),
        "memory": [61.25, *[61.5] * (STEPS - 1)],
        "time": around("prime time", STEPS, 12.3),
        "orchestrator": around("prime orchestrator", STEPS, 34.5),
        "reward": [1 - value for value in falling("prime reward", STEPS, 0.7, 0.3, 0.03)],
        "length": around("prime length", STEPS, 231.0, 0.05),
    }
    clock = prime_logger.format_time
    logger.info("Starting training loop (max_steps=10)")
    for step in range(1, STEPS + 1):
        index = step - 1
        row = orchestrator_row(step, of)
        if step == 4:
            row["train/agg/effective/agent/reward/std"] = float("nan")
        asyncio.run(monitor.log_metrics(row, step))
        orchestrator_logger.success(
            f"Step {step} | {clock(row['time/step']):>7} | Reward {of['reward'][index]:.4f} | "
            f"Trainable 60/64 ({60 / 64:.1%}) | Turns 1.0 | Branches 1.0 | Max Off-Policy 1 | "
            f"Error {0.02:.1%} | Cancelled {0.0:.1%} | Truncation {0.03125:.1%}"
        )
        rows = trainer_rows(step, of)
        perf, optim, stats, times = rows[:4]
        logger.success(
            f"Step {step} | {clock(times['time/step']):>7} | Loss {stats['loss/mean']:.4f} | "
            f"Entropy {stats['entropy/all/mean']:.4f} | "
            f"Mismatch KL {stats['mismatch_kl/all/mean']:.4f} | "
            f"Grad. Norm {optim['optim/grad_norm']:.4f} | LR {optim['optim/lr']:.2e} | "
            f"Throughput {perf['perf/throughput']:.0f} tokens/s | MFU {perf['perf/mfu']:.1f}% | "
            f"Peak Mem. {perf['perf/peak_memory']:.1f} GiB"
        )
        for row in rows:
            asyncio.run(monitor.log_metrics(row, step))
        if step == 5:
            logger.info("Saving checkpoint at step 5")
    monitor.file.close()
    # The trainer runs under torchrun, with --tee=3 --role=trainer: each line gets the role.
    lines_of_trainer = logs["trainer"].getvalue().splitlines(keepends=True)
    (folder / "trainer.log").write_text("".join(f"[trainer0]:{line}" for line in lines_of_trainer))
    (folder / "orchestrator.log").write_text(logs["orchestrator"].getvalue())

    source_name = f"PrimeIntellect-ai/prime-rl@{COMMIT}"
    steps = list(range(1, STEPS + 1))
    lines = Output(
        "metrics.jsonl",
        "jsonl",
        f"the framework's own writer prime_rl/monitors/file.py, from {source_name}; "
        "rows in the form of trainer/rl/train.py and orchestrator/orchestrator.py",
        steps,
        note="six rows a step, five by the trainer; time/step stands in two of them: "
        "the trainer's row also has time/forward_backward. "
        "A value that is not finite was left out by the writer, at step 4",
    )
    for ours, name, key, scale in (
        ("loss", "loss/mean", "loss", 1.0),
        ("grad_norm", "optim/grad_norm", "norm", 1.0),
        ("step_time_s", "time/step", "time", 1.0),
        ("tokens_per_sec", "perf/throughput", "rate", 1.0),
        ("max_memory_bytes", "perf/peak_memory", "memory", GIB),
        ("reward", "train/agg/effective/agent/reward/mean", "reward", 1.0),
        ("entropy", "entropy/all/mean", "entropy", 1.0),
        ("completion_length", "train/agg/effective/num_output_tokens/mean", "length", 1.0),
        ("mismatch_kl", "mismatch_kl/all/mean", "mismatch", 1.0),
    ):
        lines.has(ours, name, of[key], scale)
    lines.has("learning_rate", "optim/lr", [1e-06] * STEPS)
    lines.has("tokens_per_sec_per_gpu", "perf/throughput_per_gpu", [v / GPUS for v in of["rate"]])
    form = f"exactly its form, from {source_name}, through its own logger prime_rl/utils/logger.py"
    console = Output("trainer.log", "console", form, steps)
    console.note = "colours, and torchrun's prefix, as prime-rl's entry point has them written"
    orchestrator = Output("orchestrator.log", "console", form, steps)
    orchestrator.note = "what the entry point shows on stdout: the trainer has a file of its own"
    orchestrator.has("reward", "Reward", of["reward"], written=lambda value: float(f"{value:.4f}"))
    for ours, name, key, digits, scale in (
        ("loss", "Loss", "loss", 4, 1.0),
        ("grad_norm", "Grad. Norm", "norm", 4, 1.0),
        ("entropy", "Entropy", "entropy", 4, 1.0),
        ("mismatch_kl", "Mismatch KL", "mismatch", 4, 1.0),
        ("tokens_per_sec", "Throughput", "rate", 0, 1.0),
        ("max_memory_bytes", "Peak Mem.", "memory", 1, float(GIB)),
    ):
        console.has(
            ours, name, of[key], scale, lambda value, digits=digits: float(f"{value:.{digits}f}")
        )
    console.has("learning_rate", "LR", [1e-06] * STEPS)
    write_expected("prime-rl", [lines, console, orchestrator])


if __name__ == "__main__":
    main()
