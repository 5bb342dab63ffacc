"""torchtune: text lines and TensorBoard by its own loggers; JSON lines by the logger of a clone."""

from __future__ import annotations

import contextlib
import io
from importlib.metadata import version

from checkout import module
from common import GIB, Output, around, falling, fresh, hide_host, single, write_expected
from standins import stand_in

stand_in("torchao", "sentencepiece", "tiktoken")

import torch

STEPS = 12
COMMIT = "bd2a0fc7c31430972728494fa01aaeeb0ebf1ba1"


def main() -> None:
    from torchtune.training.metric_logging import DiskLogger, TensorBoardLogger

    folder = fresh("torchtune")
    loss = falling("tune loss", STEPS, 1.9, 1.1, 0.01)
    norm = falling("tune norm", STEPS, 2.2, 0.8, 0.08)
    rate = around("tune rate", STEPS, 1234.5)
    rates = [2e-5 * (STEPS - index) / STEPS for index in range(STEPS)]
    newer = module(
        "torchtune", "torchtune/training/metric_logging.py", "torchtune_newer"
    ).DiskLogger
    with contextlib.redirect_stdout(io.StringIO()):
        loggers = [
            DiskLogger(str(folder), filename="log_1787392800.txt"),
            newer(str(folder), output_fmt="jsonl", filename="log_1787392800.jsonl"),
            TensorBoardLogger(str(folder / "tensorboard"), organize_logs=False),
        ]
    for index in range(STEPS):
        row = {
            "loss": loss[index],
            "lr": rates[index],
            "tokens_per_second_per_gpu": rate[index],
            "peak_memory_active": 12.25,
            "peak_memory_alloc": 12.125,
            "peak_memory_reserved": 14.0,
            "grad_norm": torch.tensor(norm[index]),
        }
        for logger in loggers:
            logger.log_dict(row, step=index + 1)
        if index == 5:
            for logger in loggers:
                logger.log_dict({"val_loss": 1.4321}, step=index + 1)
    for logger in loggers:
        logger.close()
    hide_host(folder)

    own = f"the framework's own writer torchtune {version('torchtune')}"
    steps = list(range(1, STEPS + 1))
    lines = Output("log_1787392800.txt", "console", own, steps)
    lines.note = "a tensor of no dimension prints as its number, not as tensor(1.2345)"
    rows = Output(
        "log_1787392800.jsonl",
        "jsonl",
        "the framework's own writer torchtune/training/metric_logging.py, "
        f"from pytorch/torchtune@{COMMIT} (no release writes JSON lines)",
        steps,
    )
    board = Output("tensorboard", "tensorboard", own, steps)
    for output, written in ((lines, float), (rows, float), (board, single)):
        output.has("loss", "loss", loss, written=written)
        output.has("learning_rate", "lr", rates, written=written)
        output.has("tokens_per_sec_per_gpu", "tokens_per_second_per_gpu", rate, written=written)
        output.has("max_memory_bytes", "peak_memory_alloc", [12.125] * STEPS, GIB)
        output.has("grad_norm", "grad_norm", norm, written=single)
    write_expected("torchtune", [lines, rows, board])


if __name__ == "__main__":
    main()
