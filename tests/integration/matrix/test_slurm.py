"""Tries in a real Slurm: how they end, and what is said if they do not."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from canary.matrix.attempt import TIMED_OUT
from tests.integration.matrix.clusters import holds_its_lock, tried, until, wait_for
from tests.integration.matrix.slurm_cluster import SlurmCluster, jobs_of, launcher


def test_tries_leave_exit_codes_and_output_and_are_one_array(
    slurm: SlurmCluster, tmp_path: Path
) -> None:
    queue = launcher(tmp_path)
    attempts = [tried(tmp_path, "sh", "-c", f"echo {n}; exit {n}", cell=f"c{n}") for n in range(3)]
    assert all(queue.start(one) for one in attempts)
    news = [until(queue) for _ in attempts]
    assert {one.phase for one in news} == {"ended"}
    assert [one.ended() for one in attempts] == [0, 1, 2]
    assert [(one.folder / "log.txt").read_text() for one in attempts] == ["0\n", "1\n", "2\n"]
    arrays = {job.partition("_")[0] for job in jobs_of(queue, *attempts)}
    assert len(arrays) == 1


def test_a_try_has_a_time_limit(slurm: SlurmCluster, tmp_path: Path) -> None:
    queue = launcher(tmp_path)
    attempt = tried(tmp_path, "sleep", "60", limit_s=0.2)
    assert queue.start(attempt)
    assert until(queue).phase == "ended"
    assert attempt.ended() == TIMED_OUT
