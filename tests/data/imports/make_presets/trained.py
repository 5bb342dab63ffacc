"""What is alike in the outputs of all that build on transformers' `Trainer`."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from common import Output, hide_host, single

History = list[dict[str, Any]]


def run(folder: Path, train: Callable[[Path], Any]) -> Any:
    """Calls `train`, keeps what it prints as `console.log` and drops its checkpoints."""
    os.environ["TENSORBOARD_LOGGING_DIR"] = "tensorboard"
    os.chdir(folder)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        trainer = train(Path())
        trainer.save_state()
    text = re.sub(r"/\S*/site-packages/", "/opt/env/lib/python3/site-packages/", printed.getvalue())
    (folder / "console.log").write_text(text)
    for dropped in [
        *folder.glob("checkpoint-*"),
        *folder.glob("model"),
        *folder.glob("completions"),
    ]:
        shutil.rmtree(dropped)
    hide_host(folder)
    return trainer


def values(history: History, name: str) -> list[float]:
    """The values of `name` in training records."""
    return [record[name] for record in history if "loss" in record and record.get(name) is not None]


def four(value: float) -> float:
    """`value` as the console has it: four significant digits, or a whole number."""
    return value if isinstance(value, int) else float(f"{value:.4g}")


def outputs(history: History, names: Mapping[str, str], own: str) -> list[Output]:
    """What `trainer_state.json`, TensorBoard and the console of this training have."""
    steps = [record["step"] for record in history if "loss" in record]
    state = Output("trainer_state.json", "trainer_state", own, steps)
    board = Output("tensorboard", "tensorboard", own, steps)
    console = Output("console.log", "console", own, steps)
    console.note = "no step in the lines; values are quoted, with four significant digits"
    for ours, name in names.items():
        found = values(history, name)
        ends = [
            record[name] for record in history if name in record and record["step"] == steps[-1]
        ]
        ends = ends if len(ends) > 1 else []
        state.has(ours, name, found, last_any_of=ends)
        board.has(ours, f"train/{name}", found, written=single, last_any_of=ends)
        console.has(ours, name, found, written=four, last_any_of=ends)
    checked = [record["eval_loss"] for record in history if "eval_loss" in record]
    if checked:
        state.has("validation_loss", "eval_loss", checked)
        board.has("validation_loss", "eval/loss", checked, written=single)
        console.has("validation_loss", "eval_loss", checked, written=four)
    return [state, board, console]
