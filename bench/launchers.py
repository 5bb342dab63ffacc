"""The same cells one by one and through each launcher: `python -m bench.launchers`.

Forty cells on the embedded model: nine trainers with and without LoRA on one rank and on two, and
four in bfloat16. A first matrix stores the history; in every fourth cell it trains with ten times
the learning rate, so that there is something to find. Then each cell is run by `canary run`, and
all of them by `canary matrix` on this machine, on Slurm and on Ray. Each must give the same
verdict as `canary run`, and a record whose exact lane is equal bit for bit. Live memory is counted
apart: before the steps that a comparison looks at, several ranks hold some tensors more or less.

Prints Markdown. `--keep DIR` keeps the records; what lies there is not run again. Slurm must be
running (`sinfo`), and Ray be reachable at `--ray`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import yaml

from canary.compare.paths import Request, compared_paths
from canary.matrix.cells import Cell, cells_of
from canary.matrix.commands import Place, command_of
from canary.matrix.document import read_matrix
from canary.matrix.outcomes import of_comparison
from canary.record.folder import load_record

ROOT = Path(__file__).parents[1]
TRAINERS = ("sft", "dpo", "reward", "ppo", "grpo", "rloo", "kto", "orpo", "cpo")
SETTINGS = {"max_steps": 8, "repeats": 1, "probe_steps": 1}
EVERY, FACTOR, RATE = 4, 10, 1e-4
LAUNCHERS: dict[str, dict[str, Any]] = {
    "local": {"devices": "cpu"},
    "slurm": {"kind": "slurm", "device": "cpu", "poll": 1},
    "ray": {"kind": "ray", "device": "cpu", "poll": 1},
}


def matrix(count: int) -> list[dict[str, Any]]:
    """Return the cells."""
    found: list[dict[str, Any]] = []
    for trainer in TRAINERS:
        for kind in ("", "_lora"):
            config = str(ROOT / "configs" / f"{trainer}{kind}_smoke.yaml")
            found += [{"config": config, "ranks": ranks} for ranks in (1, 2)]
            if trainer in ("sft", "dpo"):
                found.append({"config": config, "dtype": "bfloat16"})
    return [one | SETTINGS | {"learning_rate": RATE} for one in found[:count]]


def written(folder: Path, name: str, cells: list[dict[str, Any]], **keys: Any) -> Path:
    """Write a matrix."""
    file = folder / f"{name}.yaml"
    # One thread each: with other numbers of threads, sums are rounded otherwise.
    document = {"name": name, "cells": cells, "env": {"OMP_NUM_THREADS": "1"}, **keys}
    file.write_text(yaml.safe_dump(document | {"history": str(folder / "history")}))
    return file


def planted(cells: list[dict[str, Any]], names: list[str]) -> list[dict[str, Any]]:
    """Return the cells with another learning rate in every fourth, under their names."""
    rates = [RATE * (FACTOR if at % EVERY == 0 else 1) for at in range(len(cells))]
    return [
        one | {"learning_rate": rate, "name": name}
        for one, rate, name in zip(cells, rates, names, strict=True)
    ]


def through(file: Path, folder: Path) -> float:
    """Run a matrix; return its seconds."""
    began = time.monotonic()
    if not (folder / "matrix.json").exists():
        words = [sys.executable, "-m", "canary.cli", "matrix", str(file), "-o", str(folder)]
        subprocess.run([*words, "--quiet"], stdout=subprocess.DEVNULL, check=False)
    return time.monotonic() - began


def one_by_one(cells: tuple[Cell, ...], folder: Path) -> float:
    """Run each cell by `canary run`; return the seconds."""
    began = time.monotonic()
    for cell in cells:
        place = folder / "cells" / cell.name / "1"
        if not (place / "runs").exists():
            words = command_of(cell, Place(Path.cwd()), place)
            subprocess.run(
                words,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                check=False,
            )
    return time.monotonic() - began


def left(folder: Path, cell: Cell) -> Path | None:
    """Return the folder of a cell's record."""
    return next(folder.glob(f"cells/{cell.name}/1/runs/*/metrics.json"), Path()).parent


def verdicts_alone(folder: Path, history: Path, cells: tuple[Cell, ...]) -> dict[str, str]:
    """Judge the runs that were started one by one."""
    found: dict[str, str] = {}
    for cell in cells:
        run = left(folder, cell)
        assert run is not None
        compared = compared_paths(Request((run,), (history,))).found
        found[cell.name] = of_comparison(compared, run).verdict
    return found


def verdicts_of(folder: Path) -> dict[str, str]:
    """Return the verdicts of a matrix."""
    told = json.loads((folder / "matrix.json").read_text())
    return {one["cell"]: one["verdict"] for one in told["cells"]}


def exact(folder: Path, cell: Cell) -> tuple[Any, Any]:
    """Return the exact lane of a cell's record, and of that the live memory."""
    run = left(folder, cell)
    if run is None:
        return None, None
    lane = dict(load_record(run).exact)
    return lane, lane.pop("memory", None)


def compared(base: Path, launchers: list[str], ray: str, count: int) -> None:
    """Run all, and print how they agree."""
    choices = matrix(count)
    cells = cells_of(*read_matrix(written(base, "cells", choices)), base / "cells.yaml")
    names = [one.name for one in cells]
    through(written(base, "history", planted(choices, names), save=True), base / "stored")
    took = one_by_one(cells, base / "alone")
    alone = verdicts_alone(base / "alone", base / "history", cells)
    print("| started by | time | verdicts | equal to `canary run` | exact lanes equal | memory |")
    print("|---|---|---|---|---|---|")
    print(f"| `canary run`, one by one | {took:.0f} s | {words(alone)} | | | |")
    lanes = {one.name: exact(base / "alone", one) for one in cells}
    differ = []
    for name in launchers:
        keys = LAUNCHERS[name] | ({"address": ray} if name == "ray" else {})
        folder = base / name
        seconds = through(written(base, name, choices, launcher=keys), folder)
        found = verdicts_of(folder)
        same = [one for one in cells if found.get(one.name) == alone[one.name]]
        agree = {one.name: exact(folder, one) for one in cells}
        equal = [one for one in cells if agree[one.name][0] == lanes[one.name][0] is not None]
        memory = sum(agree[one][1] == lanes[one][1] for one in lanes)
        print(
            f"| `canary matrix`, {name} | {seconds:.0f} s | {words(found)} | {len(same)} of "
            f"{len(cells)} | {len(equal)} of {len(cells)} | {memory} of {len(cells)} |"
        )
        differ += [f"{name} {one.name}: another verdict" for one in cells if one not in same]
        differ += [f"{name} {one.name}: another exact lane" for one in cells if one not in equal]
    print("\n" + "\n".join(differ or ["Nothing differs."]))


def words(verdicts: dict[str, str]) -> str:
    """Return how often each verdict was given."""
    return ", ".join(f"{count} {one}" for one, count in Counter(verdicts.values()).most_common())


def main() -> None:
    """Run and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--launchers", nargs="*", default=[*LAUNCHERS], choices=[*LAUNCHERS])
    parser.add_argument("--ray", default="http://127.0.0.1:8265", help="Of Ray's dashboard.")
    parser.add_argument("--cells", type=int, default=40)
    options = parser.parse_args()
    os.environ["HF_HUB_OFFLINE"] = "1"
    with tempfile.TemporaryDirectory() as scratch:
        base = (options.keep or Path(scratch)).absolute()
        base.mkdir(parents=True, exist_ok=True)
        compared(base, options.launchers, options.ray, options.cells)


if __name__ == "__main__":
    main()
