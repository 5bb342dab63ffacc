"""A real Slurm that fails: nodes and controller gone, preemption, late files, wrong clocks."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from canary.matrix.cells import Cell
from canary.matrix.queue import QueueLauncher
from tests.integration.matrix.clusters import (
    counted,
    holds_its_lock,
    quiet,
    seen_of,
    until,
    wait_for,
)
from tests.integration.matrix.slurm_cluster import SlurmCluster, jobs_of, launcher
from tests.integration.matrix.stand_ins import judged

pytestmark = pytest.mark.slow


def node_of(slurm: SlurmCluster, job: str) -> str:
    """Return the node on which a job runs."""
    return slurm.asked("squeue", "-r", "-h", "-j", job, "-o", "%N").strip()


def test_a_node_goes_down(slurm: SlurmCluster, tmp_path: Path) -> None:
    queue = launcher(tmp_path, requeue=False)
    attempt = counted(tmp_path, 4)
    assert queue.start(attempt)
    quiet(queue, 0.1)
    wait_for(lambda: holds_its_lock(attempt))
    [job] = jobs_of(queue, attempt)
    node = node_of(slurm, job)
    slurm.told("scontrol", "update", f"nodename={node}", "state=down", "reason=test")
    news = until(queue)
    assert (news.gave_up() or "").startswith("Slurm: NODE_FAIL")


def waits_in(queue: QueueLauncher, cell: str) -> bool:
    quiet(queue, 0.5)
    return "PENDING" in queue.queued().get(cell, "")


def test_a_cell_that_is_preempted_twice_ends_once(slurm: SlurmCluster, tmp_path: Path) -> None:
    queue = launcher(tmp_path, partition="low")
    attempt = counted(tmp_path, 2)
    assert queue.start(attempt)
    quiet(queue, 0.1)
    for start in (1, 2):
        wait_for(lambda n=start: attempt.starts() == n and holds_its_lock(attempt))  # type: ignore[misc]
        slurm.told("sbatch", "-p", "high", "-N2", "--exclusive", "-o", "/dev/null", "--wrap=true")
        wait_for(lambda: slurm.jobs("PENDING") and not attempt.is_running())
        wait_for(lambda: waits_in(queue, "one"))
        slurm.begin_now()
    news = until(queue)
    assert news.gave_up() is None
    assert seen_of(tmp_path) == ["begins", "begins", "begins", "ends"]
    assert attempt.starts() == 3
    outcome = judged(Cell("one", "run", None, ()), attempt)
    assert (outcome.verdict, outcome.words) == ("pass", "started 3 times")


def test_a_killed_matrix_goes_on(slurm: SlurmCluster, tmp_path: Path) -> None:
    """Killed at random moments, it runs each cell once to its end, and none twice at once."""
    folder = tmp_path / "out"
    command = [sys.executable, "-m", "tests.integration.matrix.stand_ins", "slurm", str(folder)]
    command.append("6")
    drawn = random.Random(7)
    for _ in range(3):
        child = subprocess.Popen(command)
        # It takes half a second until it submits.
        time.sleep(drawn.uniform(0.5, 3.0))
        child.send_signal(signal.SIGKILL)
        child.wait()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "6", done.stderr
    for notes in (folder / "notes").iterdir():
        assert (notes / "seen").read_text() == "begins\nends\n"
