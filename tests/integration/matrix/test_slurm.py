"""Tries in a real Slurm: how they end, and what is said if they do not."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.integration.matrix.clusters import (
    counted,
    holds_its_lock,
    quiet,
    seen_of,
    tried,
    until,
    wait_for,
)
from tests.integration.matrix.slurm_cluster import SlurmCluster, jobs_of, launcher
from tests.integration.matrix.stand_ins import matrix_of

pytestmark = pytest.mark.slow


def test_tries_leave_exit_codes_and_output_and_are_one_array(
    slurm: SlurmCluster, tmp_path: Path
) -> None:
    queue = launcher(tmp_path)
    attempts = [tried(tmp_path, "sh", "-c", f"echo {n}; exit {n}", cell=f"c{n}") for n in range(3)]
    assert all(queue.start(one) for one in attempts)
    news = [until(queue) for _ in attempts]
    assert {one.gave_up() for one in news} == {None}
    assert [one.ended() for one in attempts] == [0, 1, 2]
    assert [(one.folder / "log.txt").read_text() for one in attempts] == ["0\n", "1\n", "2\n"]
    assert len([*(tmp_path / "slurm").glob("canary-*.json")]) == 1


def test_a_refusal_is_told(slurm: SlurmCluster, tmp_path: Path) -> None:
    queue = launcher(tmp_path, partition="nowhere")
    matrix = matrix_of(tmp_path, queue, lambda cell: tried(tmp_path, "true", cell="c0"))
    [entry] = matrix.run()
    assert entry.outcome is not None
    assert entry.outcome.verdict == "error"
    assert "invalid partition" in entry.outcome.words.lower(), entry.outcome.words


def test_a_cancelled_job_is_lost_with_the_word_of_slurm(
    slurm: SlurmCluster, tmp_path: Path
) -> None:
    queue = launcher(tmp_path)
    attempt = tried(tmp_path, "sleep", "60")
    assert queue.start(attempt)
    quiet(queue, 0.1)
    wait_for(lambda: holds_its_lock(attempt))
    slurm.told("scancel", *jobs_of(queue, attempt))
    news = until(queue)
    assert (news.gave_up() or "").startswith("Slurm: CANCELLED")
    assert not attempt.is_running()


def test_a_job_that_never_starts_is_cancelled_and_cannot_run_later(
    slurm: SlurmCluster, tmp_path: Path
) -> None:
    queue = launcher(tmp_path, in_queue=0.6, options={"begin": "now+1hour"})
    attempt = counted(tmp_path, 0, cell="c0")
    matrix = matrix_of(tmp_path, queue, lambda cell: attempt)
    [entry] = matrix.run()
    assert entry.outcome is not None
    words = "it waited 0.01 minutes in the queue of Slurm: PENDING (BeginTime)"
    assert entry.outcome.words == words
    assert slurm.jobs() == []
    subprocess.run(["sh", str(attempt.folder / "run.sh")], check=True)
    assert seen_of(tmp_path, "c0") == []


def test_cancel_ends_commands_and_jobs_and_the_next_start_runs_them(
    slurm: SlurmCluster, tmp_path: Path
) -> None:
    queue = launcher(tmp_path)
    attempts = [counted(tmp_path, 30, cell=f"c{n}") for n in range(2)]
    attempts.append(tried(tmp_path, "true", cell="waits", cores=2))
    assert all(queue.start(one) for one in attempts)
    quiet(queue, 0.1)
    wait_for(lambda: all(holds_its_lock(one) for one in attempts[:2]))
    queue.cancel()
    assert not any(one.is_running() for one in attempts)
    assert slurm.jobs() == []
    assert [one.ended() for one in attempts[:2]] == [None, None]
    for one in attempts:
        one.cleared()
    again = launcher(tmp_path)
    short = [counted(tmp_path, 0, cell=f"c{n}") for n in range(2)]
    # Slurm still names the cancelled jobs, which cannot start any more.
    assert not any(again.adopt(one) for one in short)
    assert all(again.start(one) for one in short)
    assert {until(again).gave_up(), until(again).gave_up()} == {None}
    assert seen_of(tmp_path, "c0") == ["begins", "begins", "ends"]
