"""A folder of stored training records; missing ones are trained."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from bench.corpus.bases import Training, digest
from bench.corpus.row import Row
from canary.record.folder import load_record
from canary.record.types import RunRecord

TIMEOUT_S = 900
PAIRS = (5, 8)
"""Runs per side, in turn, if only time shows a fault; the second number if the first is too few."""


class Missing(Exception):
    """A training that should be stored but is missing."""


def decisions_of(row: Row) -> tuple[int, ...]:
    """Return the numbers of runs per side after which a row is judged, until one decides."""
    return PAIRS if row.paired else (1,)


def trainings_of(row: Row, runs: int) -> tuple[tuple[Training, ...], tuple[Training, ...]]:
    """Return the (changed, clean) trainings of a row; the i-th ones form a pair."""
    if not row.paired:
        return (Training(row.base, row),), (Training(row.base),)
    # Pairs must run in turn, so that each row has its own clean runs.
    names = [f"{row.id} {number}" for number in range(runs)]
    return (
        tuple(Training(row.base, row, name) for name in names),
        tuple(Training(row.base, None, name) for name in names),
    )


class Store:
    """Trainings by their digest; each runs once."""

    def __init__(self, root: Path, at_a_time: int, train: bool) -> None:
        self._root = root
        self._pool = ThreadPoolExecutor(at_a_time)
        self._train = train
        self._blocks: dict[tuple[Training, ...], Future[list[RunRecord]]] = {}

    def begin(self, rows: Sequence[Row]) -> None:
        """Start the trainings of each row's first decision, single trainings before pairs."""
        for row in sorted(rows, key=lambda row: row.paired):
            for block in blocks_of(row, decisions_of(row)[0]):
                self._start(block)

    def sides(self, row: Row, runs: int) -> tuple[list[RunRecord], list[RunRecord]]:
        """Wait for `runs` runs per side (one of `decisions_of`). Return (changed, clean) records.

        Raises:
            Missing: a record is not stored and training is off, or a training left no record.
        """
        found: dict[Training, RunRecord] = {}
        for block in blocks_of(row, runs):
            found |= zip(block, self._start(block).result(), strict=True)
        changed, clean = trainings_of(row, runs)
        return [found[one] for one in changed], [found[one] for one in clean]

    def close(self) -> None:
        """Cancel waiting trainings, and wait for running ones."""
        self._pool.shutdown(cancel_futures=True)

    def _start(self, block: tuple[Training, ...]) -> Future[list[RunRecord]]:
        if block not in self._blocks:
            self._blocks[block] = self._pool.submit(lambda: [self._record(one) for one in block])
        return self._blocks[block]

    def _record(self, training: Training) -> RunRecord:
        name = digest(training)
        folder = self._root / name
        stored = sorted((folder / "runs").glob("*/metrics.json"))
        if not (folder / "ended").exists():
            if not self._train:
                raise Missing(f"{_label(training)} is missing in {self._root} ({name})")
            shutil.rmtree(folder, ignore_errors=True)
            _run(training, folder)
            stored = sorted((folder / "runs").glob("*/metrics.json"))
        if not stored:
            raise Missing(f"{_label(training)} left no record: see {folder}/said.txt")
        return load_record(stored[-1])


def blocks_of(row: Row, runs: int) -> list[tuple[Training, ...]]:
    """Return blocks of trainings; a block's trainings run in turn: one, or some pairs."""
    changed, clean = trainings_of(row, runs)
    if not row.paired:
        return [clean, changed]
    turns = [
        pair if number % 2 else pair[::-1]
        for number, pair in enumerate(zip(changed, clean, strict=True))
    ]
    ends = [count for count in decisions_of(row) if count <= runs]
    parts = [turns[start:end] for start, end in zip([0, *ends], ends, strict=False)]
    return [tuple(training for turn in part for training in turn) for part in parts]


def _run(training: Training, folder: Path) -> None:
    """Train in a separate process and mark the folder as ended, also after a failure."""
    command = training.write(folder)
    path = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
    start = time.monotonic()
    done = subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        env=os.environ | {"PYTHONPATH": path} | training.environment(),
    )
    (folder / "said.txt").write_text(done.stdout + done.stderr)
    (folder / "ended").write_text(f"{_label(training)}\n{done.returncode}\n")
    seconds = time.monotonic() - start
    print(f"{_label(training)}: code {done.returncode}, {seconds:.0f} s", file=sys.stderr)


def _label(training: Training) -> str:
    side = training.row.id if training.row else "clean"
    return " ".join(filter(None, (training.base, side, training.pair)))
