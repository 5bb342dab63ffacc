"""Tries in a real Ray cluster: how they end, and what is said if they do not."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from canary.matrix.attempt import CLUSTER, TIMED_OUT
from tests.integration.matrix.clusters import (
    counted,
    holds_its_lock,
    quiet,
    seen_of,
    tried,
    until,
    wait_for,
)
from tests.integration.matrix.ray_cluster import RayCluster, launcher

pytestmark = pytest.mark.slow


def test_tries_leave_exit_codes_and_output(ray: RayCluster, tmp_path: Path) -> None:
    queue = launcher(ray.address)
    attempts = [
        tried(tmp_path, "sh", "-c", "echo 1; exit 1"),
        tried(tmp_path, "sleep", "60", cell="long", limit_s=0.2),
    ]
    assert all(queue.start(one) for one in attempts)
    assert {until(queue).gave_up() for _ in attempts} == {None}
    assert [one.ended() for one in attempts] == [1, TIMED_OUT]
    assert [(one.folder / "log.txt").read_text() for one in attempts] == ["1\n", ""]


def test_cancel_ends_commands_and_jobs_and_the_next_start_runs_them(
    ray: RayCluster, tmp_path: Path
) -> None:
    queue = launcher(ray.address)
    runs, waits = counted(tmp_path, 30), counted(tmp_path, 0, cell="waits")
    waits = replace(waits, cores=2)
    assert queue.start(runs)
    quiet(queue, 0.1)
    wait_for(lambda: holds_its_lock(runs))
    assert queue.start(waits)
    quiet(queue, 0.1)
    queue.cancel()
    assert (runs.is_running(), runs.ended()) == (False, None)
    runs.cleared()
    waits.cleared()
    again = launcher(ray.address)
    assert again.start(counted(tmp_path, 0))
    assert again.start(waits)
    assert [until(again).gave_up() for _ in range(2)] == [None, None]
    assert seen_of(tmp_path) == ["begins", "begins", "ends"]
    assert seen_of(tmp_path, "waits") == ["begins", "ends"]


USES_ALL = """
import ray, time
ray.init(address="auto", logging_level="ERROR", log_to_driver=False)
@ray.remote(num_cpus=1)
def meets():
    time.sleep(2)
    return time.time()
first, second = ray.get([meets.remote() for _ in range(2)])
print("together" if abs(first - second) < 1.9 else "apart")
"""


def test_a_cell_that_trains_with_ray_gets_the_cluster(ray: RayCluster, tmp_path: Path) -> None:
    """Both cores of the cluster are for its tasks: the job itself takes none."""
    queue = launcher(ray.address)
    attempt = tried(tmp_path, sys.executable, "-c", USES_ALL, limit_s=60.0, cores=2)
    attempt = replace(attempt, device=CLUSTER)
    assert queue.start(attempt)
    assert until(queue).gave_up() is None
    assert (attempt.folder / "log.txt").read_text().splitlines()[-1] == "together"


def test_a_head_that_is_away_loses_nothing(ray: RayCluster, tmp_path: Path) -> None:
    queue = launcher(ray.address)
    runs, waits = counted(tmp_path, 1, cell="runs"), counted(tmp_path, 0, cell="waits")
    assert queue.start(runs)
    quiet(queue, 0.1)
    wait_for(lambda: holds_its_lock(runs))
    # All that the launcher sees of a cluster is its address.
    client = queue.queue._client  # type: ignore[attr-defined]
    client._address = "http://127.0.0.1:1"
    assert queue.start(waits)
    assert until(queue) == runs, "its files say that it ended"
    assert queue.silent == "the Ray cluster does not answer"
    assert queue.queued() == {"waits": queue.silent}
    client._address = ray.address
    assert until(queue).gave_up() is None
    assert queue.silent == ""
    assert seen_of(tmp_path, "waits") == ["begins", "ends"]
