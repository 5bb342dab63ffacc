"""Megatron-LM: TensorBoard and the console in the form of `training_log` and `evaluate_and_print`.

That function needs a device and a model-parallel group, so its calls are written out here.
"""

from __future__ import annotations

import math

from common import Output, around, bar, falling, fresh, hide_host, single, write_expected
from torch.utils.tensorboard import SummaryWriter

STEPS = 12
BATCH = 32
COMMIT = "d98e8a64ddf34856e74b24714e3bedb2f5a39553"


def main() -> None:
    folder = fresh("megatron-lm")
    writer = SummaryWriter(log_dir=str(folder / "tensorboard"), max_queue=1000)
    loss = falling("megatron loss", STEPS, 10.6, 7.1, 0.004)
    norm = falling("megatron norm", STEPS, 5.0, 1.5, 0.05)
    seconds = around("megatron time", STEPS, 1.234)
    rates = [1e-5 * (index + 1) for index in range(STEPS)]
    peak = [34359738368 + 1048576 * min(index, 3) for index in range(STEPS)]
    log = [
        "using world size: 8, data-parallel size: 8, context-parallel size: 1\n",
        "------------------------ arguments ------------------------\n",
        "  lr .............................................. 0.00012\n",
        "  log_interval .................................... 1\n",
        "-------------------- end of arguments ---------------------\n",
        bar("Loading safetensors using Runai Model Streamer", 2, 2, 1.0) + "\n",
        "> building train, validation, and test datasets for GPT ...\n",
        "(min, max) time across ranks (ms):\n"
        "    load-checkpoint ................................: (2.14, 2.31)\n",
        "training ...\n",
        "[before the start of training step] datetime: 2026-08-22 10:00:00 \n",
    ]
    for index in range(STEPS):
        iteration, samples = index + 1, BATCH * (index + 1)
        for name, value in (
            ("learning-rate", rates[index]),
            ("batch-size", BATCH),
            ("lm loss", loss[index]),
            ("loss-scale", 1.0),
            ("grad-norm", norm[index]),
            ("num-zeros", 123.0),
        ):
            writer.add_scalar(name, value, iteration)
            writer.add_scalar(f"{name} vs samples", value, samples)
        writer.add_scalar("mem-reserved-bytes", 38654705664, iteration)
        writer.add_scalar("mem-allocated-bytes", 17179869184, iteration)
        writer.add_scalar("mem-max-allocated-bytes", peak[index], iteration)
        writer.add_scalar("mem-allocated-count", 2101, iteration)
        if iteration > 1:
            writer.add_scalar("iteration-time", seconds[index], iteration)
            writer.add_scalar("throughput", 262.0 / seconds[index], iteration)
        log.append(
            f" [2026-08-22 10:00:{index + 2:02d}.123456] iteration {iteration:8d}/{STEPS:8d} |"
            f" consumed samples: {samples:12d} |"
            f" elapsed time per iteration (ms): {seconds[index] * 1000.0:.1f} |"
            f" throughput per GPU (TFLOP/s/GPU): {262.0 / seconds[index]:.1f} |"
            f" learning rate: {rates[index]:.6E} | global batch size: {BATCH:5d} |"
            f" lm loss: {loss[index]:.6E} | loss scale: 1.0 | grad norm: {norm[index]:.3f} |"
            f" num zeros: 123.0 | number of skipped iterations: {0:3d} |"
            f" number of nan iterations: {0:3d} |\n"
        )
        if iteration == 1:
            log.append(
                "[Rank 0] (after 1 iterations) memory (MB) | allocated: 16384.00 |"
                " max allocated: 32768.00 | reserved: 36864.00 | max reserved: 36864.00\n"
            )
        if iteration == 6:
            checked = loss[index] + 0.02
            perplexity = math.exp(min(20, checked))
            writer.add_scalar("lm loss validation", checked, iteration)
            writer.add_scalar("lm loss validation vs samples", checked, samples)
            writer.add_scalar("lm loss validation ppl", perplexity, iteration)
            writer.add_scalar("lm loss validation ppl vs samples", perplexity, samples)
            told = (
                f" validation loss at iteration 6 | lm loss value: {checked:.6E} | "
                f"lm loss PPL: {perplexity:.6E} | "
            )
            log += ["-" * (len(told) + 1) + "\n", told + "\n", "-" * (len(told) + 1) + "\n"]
    writer.close()
    hide_host(folder)
    (folder / "console.log").write_text("".join(log))

    form = f"exactly its form, from NVIDIA/Megatron-LM@{COMMIT} megatron/training/training.py"
    steps = list(range(1, STEPS + 1))
    board = Output("tensorboard", "tensorboard", form, steps)
    board.note = (
        "names with ' vs samples' have consumed samples as their step; "
        "iteration-time and throughput begin at the second iteration"
    )
    console = Output("console.log", "console", form, steps)
    console.note = "times are milliseconds here, seconds in TensorBoard"
    board.has("loss", "lm loss", loss, written=single)
    board.has("grad_norm", "grad-norm", norm, written=single)
    board.has("learning_rate", "learning-rate", rates, written=single)
    board.has("step_time_s", "iteration-time", seconds[1:], written=single)
    board.has("max_memory_bytes", "mem-max-allocated-bytes", peak, written=single)
    board.has("validation_loss", "lm loss validation", [loss[5] + 0.02], written=single)
    console.has("loss", "lm loss", loss, written=lambda value: float(f"{value:.6E}"))
    console.has("grad_norm", "grad norm", norm, written=lambda value: float(f"{value:.3f}"))
    console.has("learning_rate", "learning rate", rates, written=lambda v: float(f"{v:.6E}"))
    console.has(
        "step_time_s",
        "elapsed time per iteration (ms)",
        seconds,
        written=lambda value: float(f"{value * 1000.0:.1f}") / 1000,
    )
    console.has(
        "tflops_per_gpu",
        "throughput per GPU (TFLOP/s/GPU)",
        [262.0 / value for value in seconds],
        written=lambda v: float(f"{v:.1f}"),
    )
    write_expected("megatron-lm", [board, console])


if __name__ == "__main__":
    main()
