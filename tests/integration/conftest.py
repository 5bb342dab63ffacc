"""Runs of the real command line, short, shared between the tests that look at them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from canary.config.schema import ONLINE_TRAINERS
from canary.config.trainers import TRAINERS
from canary.record.folder import load_record
from canary.record.jsonio import read_rows
from canary.record.types import RunRecord
from canary.runner.warm import WARM_SOCKET, warm_starts

STEPS, LOOKED = 6, 2

TINY = {
    "max_steps": STEPS,
    "look_steps": LOOKED,
    "metrics_warmup_steps": 1,
    "batch_size": 2,
    "gradient_accumulation_steps": 2,
    "dataset_size": 24,
    "threads": 1,
    "device": "cpu",
}


PATIENT = {"max_step_time_increase_pct": 1e6, "max_tps_drop_pct": 99.999}
"""These tests are not about time, and on a busy machine a step of two threads, which wait for each
other at every operator, takes a hundred times as long."""


def settings(training_type: str, **changes: object) -> dict[str, object]:
    """A config of a few steps on the embedded default."""
    extra: dict[str, object] = {"name": training_type, "training_type": training_type}
    if training_type in ONLINE_TRAINERS:
        extra["max_new_tokens"] = 12
    if training_type in TRAINERS and TRAINERS[training_type].in_groups:
        extra["num_generations"] = 2
    return TINY | extra | changes


@dataclass(frozen=True)
class Finished:
    """One ended command."""

    code: int
    out: str
    err: str
    folder: Path

    def record(self) -> RunRecord:
        return load_record(self.folder)

    def rows(self) -> list[dict[str, object]]:
        return list(read_rows(self.folder / "steps.jsonl"))

    def log(self) -> str:
        return (self.folder / "log.txt").read_text()


def canary(
    *arguments: str,
    cwd: Path | None = None,
    timeout: float = 240,
    more: Mapping[str, str] | None = None,
) -> Finished:
    """Runs the command line in a process of its own; `more` of its environment."""
    done = subprocess.run(
        [sys.executable, "-m", "canary.cli", *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
        cwd=cwd,
        env=os.environ
        | {
            "PYTHONPATH": os.pathsep.join(
                filter(None, (str(cwd or ""), os.environ.get("PYTHONPATH")))
            )
        }
        | dict(more or {}),
    )
    last = done.stdout.strip().splitlines()[-1] if done.stdout.strip() else ""
    return Finished(done.returncode, done.stdout, done.stderr, Path(last))


def write_config(folder: Path, values: dict[str, object], name: str = "canary.yaml") -> Path:
    """Writes a config file."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(yaml.safe_dump(values))
    return path


def run_config(folder: Path, values: dict[str, object], *arguments: str) -> Finished:
    """`canary run` of a config in a folder of its own."""
    path = write_config(folder, values)
    return canary("run", str(path), "-o", str(folder / "out"), *arguments)


@pytest.fixture(scope="session", autouse=True)
def _warm() -> Iterator[None]:
    """The trainings of a session import torch and what trains once."""
    with warm_starts():
        yield


@pytest.fixture(scope="module")
def own_warm() -> Iterator[None]:
    """A warm Python of the file's own: each serves one environment, that of its first launch."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(WARM_SOCKET, raising=False)
        with warm_starts():
            yield


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Trains with one thread of torch, as a test has one core."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
