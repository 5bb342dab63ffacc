"""Stores of W&B (offline), trackio and MLflow, by their own packages.

W&B has the names of open-instruct's GRPO, which logs nowhere else; the others have those of verl.
"""

from __future__ import annotations

import importlib
import os
import shutil
import sqlite3
import sys
from importlib.metadata import version
from pathlib import Path

from common import STORES, Output, fresh, write_expected

STEPS = 8
NAMES = {
    "loss": "actor/pg_loss",
    "grad_norm": "actor/grad_norm",
    "learning_rate": "actor/lr",
    "step_time_s": "timing_s/step",
    "reward": "critic/score/mean",
    "entropy": "actor/entropy",
    "completion_length": "response_length/mean",
    "tokens_per_sec_per_gpu": "perf/throughput",
}


def wandb_run(folder: Path, rows: list[dict[str, float]]) -> None:
    """An offline run without the host, the user, the paths, git or the output."""
    import wandb

    settings = wandb.Settings(
        mode="offline",
        console="off",
        host="host",
        username="user",
        program="grpo_fast.py",
        disable_git=True,
        disable_code=True,
        save_code=False,
        x_disable_stats=True,
        x_disable_meta=True,
        x_disable_machine_info=True,
        x_save_requirements=False,
        root_dir=".",
    )
    run = wandb.init(project="open_instruct_internal", name="grpo", dir=".", settings=settings)
    for row in rows:
        run.log(row, step=int(row["training_step"]))
    run.finish()
    kept = next(folder.glob("wandb/offline-run-*"))
    for extra in (kept / "logs", kept / "tmp", kept / "files"):
        shutil.rmtree(extra, ignore_errors=True)
    for link in folder.glob("wandb/*"):
        if link != kept:
            link.unlink() if link.is_symlink() or link.is_file() else shutil.rmtree(link)


def verl_rows() -> list[dict[str, float]]:
    """The numbers of verl's rows, as many as the stores keep."""
    made = importlib.import_module("write_verl").rows()[:STEPS]
    kept = (*NAMES.values(), "training/global_step", "val-core/openai/gsm8k/reward/mean@1")
    return [
        {name: float(row[name]) for name in kept if name in row}  # type: ignore[arg-type]
        for row in made
    ]


def hide_paths(root: Path, database: Path | None = None) -> None:
    """MLflow writes where its artifacts lie: puts the folder /runs for the one on this machine."""
    for path in root.rglob("meta.yaml"):
        path.write_text(path.read_text().replace(str(root), "/runs"))
    if database:
        connection = sqlite3.connect(database)
        for table, column in (("experiments", "artifact_location"), ("runs", "artifact_uri")):
            connection.execute(
                f"UPDATE {table} SET {column} = replace({column}, ?, ?)", (str(root), "/runs")
            )
        connection.commit()
        connection.close()


def shrink(database: Path) -> None:
    """Small pages: most tables of such a store are empty, and each takes one."""
    connection = sqlite3.connect(database)
    connection.execute("PRAGMA journal_mode=DELETE")
    connection.execute("PRAGMA page_size=512")
    connection.execute("VACUUM")
    connection.close()


def main() -> None:
    oi = importlib.import_module("write_open_instruct")
    made = oi.grpo_rows(STEPS)
    root = fresh("wandb_offline", root=STORES)
    os.chdir(root)
    wandb_run(root, made)
    path = next(root.rglob("*.wandb")).relative_to(root)
    output = Output(
        str(path.parent),
        "wandb",
        f"the wandb package {version('wandb')}",
        list(range(1, STEPS + 1)),
        "open-instruct",
    )
    for ours, name in oi.GRPO_NAMES.items():
        output.has(ours, name, [row[name] for row in made])
    write_expected("wandb_offline", [output], STORES)

    rows = verl_rows()
    from verl.utils.tracking import Tracking

    steps = list(range(1, STEPS + 1))
    own = f"the framework's own writer verl {version('verl')}"

    root = fresh("trackio", root=STORES)
    os.environ["TRACKIO_DIR"] = str(root)
    os.chdir(root)
    tracking = Tracking("gsm8k", "qwen_grpo", default_backend=["trackio"], config={"seed": 1})
    for step, row in zip(steps, rows, strict=True):
        tracking.log(row, step=step)
    tracking.finish()
    for database in root.rglob("*.db"):
        shrink(database)
    for lock in root.rglob("*.lock"):
        lock.unlink()
    found = next(root.rglob("*.db")).relative_to(root)
    output = Output(str(found), "trackio", f"{own} on trackio {version('trackio')}", steps, "verl")
    for ours, name in NAMES.items():
        output.has(ours, name, [row[name] for row in rows])
    write_expected("trackio", [output], STORES)

    for kind, place in (("mlflow_files", "file:mlruns"), ("mlflow_sqlite", "sqlite:///mlflow.db")):
        root = fresh(kind, root=STORES)
        os.chdir(root)
        os.environ["MLFLOW_TRACKING_URI"] = place
        os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
        os.environ["USER"] = os.environ["LOGNAME"] = os.environ["USERNAME"] = "user"
        tracking = Tracking("gsm8k", "qwen_grpo", default_backend=["mlflow"], config={"seed": 1})
        for step, row in zip(steps, rows, strict=True):
            tracking.log(row, step=step)
        tracking.finish()
        import mlflow

        while mlflow.active_run():
            mlflow.end_run()
        stored = next(root.glob("*.db"), None)
        hide_paths(root, stored)
        if stored:
            shrink(stored)
        for folder in root.rglob("*"):  # git keeps no empty folder, and MLflow looks for them
            if folder.is_dir() and not any(folder.iterdir()):
                (folder / ".gitkeep").touch()
        path = Path(place.partition(":")[2].lstrip("/"))
        output = Output(
            str(path), kind.replace("_", " "), f"{own} on mlflow {version('mlflow')}", steps, "verl"
        )
        output.format = "mlflow"
        for ours, name in NAMES.items():
            output.has(ours, name, [row[name] for row in rows])
        write_expected(kind, [output], STORES)


if __name__ == "__main__":
    sys.exit(main())
