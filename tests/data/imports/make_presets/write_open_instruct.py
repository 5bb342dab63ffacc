"""open-instruct: an SFT run in TensorBoard, by accelerate's tracker that it logs with, and the
console in the form of `open_instruct/finetune.py`; the panel of a GRPO run by its own function.

Its GRPO metrics go to W&B alone: see `write_stores.py`.
"""

from __future__ import annotations

import ast
import contextlib
import io
import os
from collections import defaultdict
from importlib.metadata import version

from accelerate import Accelerator
from checkout import clone
from common import GIB, Output, around, bar, falling, fresh, hide_host, ray, single, write_expected
from rich import print as rprint
from rich.panel import Panel
from rich.table import Table

STEPS = 10
COMMIT = "e6c3044aa6201c8bfa4573c1b03142af599e730d"


def grpo_rows(steps: int) -> list[dict[str, float]]:
    """The scalar metrics of `one_training_step` in `grpo_fast.py`, one row a step."""
    loss = falling("oi grpo loss", steps, 0.02, 0.004, 0.3)
    norm = falling("oi grpo norm", steps, 0.6, 0.2, 0.1)
    score = [10 * (1 - value) for value in falling("oi grpo score", steps, 0.75, 0.4, 0.03)]
    length = around("oi grpo length", steps, 812.0, 0.05)
    seconds = around("oi grpo time", steps, 64.0)
    return [
        {
            "episode": 512 * (index + 1),
            "global_step": 512 * (index + 1),
            "training_step": index + 1,
            "val/num_total_tokens": 481000 * (index + 1),
            "val/num_step_tokens": 481000,
            "epoch": 0.02 * (index + 1),
            "learner_tokens_per_second_overall": 7500.0,
            "learner_tokens_per_second_step": 481000 / seconds[index],
            "time/total": seconds[index],
            "time/training": seconds[index] * 0.4,
            "time/saving": 0.0,
            "time/weight_sync": 2.1,
            "time/group_generation_max": seconds[index] * 0.9,
            "scores": score[index],
            "unsolved_batch_size_ratio": 0.31,
            "val/sequence_lengths": length[index],
            "val/sequence_lengths_max": 2048,
            "val/stop_rate": 0.94,
            "val/advantages_mean": 0.0001,
            "val/actor_tokens_per_second": 21000.0,
            "loss/kl_avg": 0.0,
            "loss/policy_avg": loss[index],
            "loss/total_avg": loss[index],
            "objective/kl2_avg": 0.0004 * index,
            "policy/clipfrac_avg": 0.0007 * index,
            "policy/entropy_avg": 0.4 - 0.008 * index,
            "val/ratio": 1.0001,
            "lr": 5e-07,
            "optim/grad_norm": norm[index],
            "debug/vllm_vs_local_logprob_diff_mean": 0.0031,
            "debug/vllm_vs_local_logprob_diff_max": 0.41,
            "learner_mfu": 21.5,
        }
        for index in range(steps)
    ]


GRPO_NAMES = {
    "loss": "loss/total_avg",
    "grad_norm": "optim/grad_norm",
    "learning_rate": "lr",
    "step_time_s": "time/total",
    "tokens_per_sec": "learner_tokens_per_second_step",
    "reward": "scores",
    "kl": "objective/kl2_avg",
    "entropy": "policy/entropy_avg",
    "clip_fraction": "policy/clipfrac_avg",
    "completion_length": "val/sequence_lengths",
    "mismatch": "debug/vllm_vs_local_logprob_diff_mean",
}


def panel_function() -> object:
    """`print_rich_single_line_metrics` alone: its module imports what needs a device."""
    tree = ast.parse((clone("open-instruct") / "open_instruct/model_utils.py").read_text())
    wanted = ("format_value", "print_rich_single_line_metrics")
    tree.body = [
        part for part in tree.body if isinstance(part, ast.FunctionDef) and part.name in wanted
    ]
    space = {"Table": Table, "Panel": Panel, "rprint": rprint, "defaultdict": defaultdict}
    exec(compile(tree, "model_utils.py", "exec"), space)
    return space["print_rich_single_line_metrics"]


def main() -> None:
    folder = fresh("open-instruct")
    loss = falling("oi loss", STEPS, 1.7, 1.05, 0.01)
    rates = [2e-5 * (STEPS - index) / STEPS for index in range(STEPS)]
    rate = around("oi rate", STEPS, 5710.0, 0.01)
    accelerator = Accelerator(cpu=True, log_with="tensorboard", project_dir=str(folder))
    accelerator.init_trackers("tensorboard", {"learning_rate": 2e-5})
    log = [
        "08/22/2026 10:00:00 - INFO - __main__ - ***** Running training *****\n",
        "08/22/2026 10:00:00 - INFO - __main__ -   Num Epochs = 1\n",
    ]
    for index in range(STEPS):
        metrics = {
            "learning_rate": rates[index],
            "total_tokens": 32768 * (index + 1),
            "total_tokens_including_padding": 40960 * (index + 1),
            "total_pred_tokens": 20480 * (index + 1),
            "per_device_tps": rate[index],
            "per_device_tps_including_padding": rate[index] * 1.25,
            "reserved_mem_GiB": 61.5,
            "allocated_mem_GiB": 52.25,
            "train_loss": loss[index],
        }
        accelerator.log(metrics, step=index + 1)
        log.append(bar("", index + 1, STEPS, 5.7 * (index + 1)))
        log.append(
            f"\n08/22/2026 10:00:{5 * (index + 1):02d} - INFO - __main__ -   Step: {index + 1}, "
            f"LR: {rates[index]}, Loss: {loss[index]}, TPS: {rate[index] * 8}\n"
        )
    accelerator.end_training()
    hide_host(folder)
    for made in [*folder.rglob("*.yml"), *folder.rglob("*.yaml")]:
        made.unlink()
    (folder / "console.log").write_text("".join(log))

    rows = grpo_rows(8)
    panel = panel_function()
    printed = io.StringIO()
    os.environ["COLUMNS"] = "200"
    with contextlib.redirect_stdout(printed):
        for row in rows:
            panel(row)  # type: ignore[operator]
    (folder / "grpo_console.log").write_text(
        ray(
            "INFO 08-22 10:00:00 [loggers.py:111] Engine 000: GPU KV cache usage: 41.2%",
            "LLMRayActor",
            901,
        )
        + printed.getvalue()
    )

    source = f"allenai/open-instruct@{COMMIT}"
    steps = list(range(1, STEPS + 1))
    board = Output(
        "tensorboard",
        "tensorboard",
        f"exactly its form, from {source} open_instruct/finetune.py, through the tracker "
        f"of accelerate {version('accelerate')} that it logs with",
        steps,
    )
    console = Output(
        "console.log",
        "console",
        f"exactly its form, from {source} open_instruct/finetune.py",
        steps,
    )
    board.has("loss", "train_loss", loss, written=single)
    board.has("learning_rate", "learning_rate", rates, written=single)
    board.has("tokens_per_sec_per_gpu", "per_device_tps", rate, written=single)
    board.has("max_memory_bytes", "allocated_mem_GiB", [52.25] * STEPS, GIB)
    console.has("loss", "Loss", loss)
    console.has("learning_rate", "LR", rates)
    console.has("tokens_per_sec", "TPS", [value * 8 for value in rate])
    panels = Output(
        "grpo_console.log",
        "console",
        "the framework's own writer print_rich_single_line_metrics of "
        f"open_instruct/model_utils.py, from {source}",
        list(range(1, 9)),
    )
    panels.note = "a panel a step, values with two decimals; the step stands in it as training_step"
    for ours, name in (
        ("loss", "loss/total_avg"),
        ("grad_norm", "optim/grad_norm"),
        ("step_time_s", "time/total"),
        ("reward", "scores"),
        ("completion_length", "val/sequence_lengths"),
    ):
        panels.has(
            ours, name, [row[name] for row in rows], written=lambda value: float(f"{value:.2f}")
        )
    write_expected("open-instruct", [board, console, panels])


if __name__ == "__main__":
    main()
