"""A real Ray cluster on this machine, for as long as the tests last."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from canary.matrix.document import Ray
from canary.matrix.queue import QueueLauncher
from canary.matrix.ray import RayQueue
from tests.integration.matrix.clusters import child_of_tests, end, free_ports, require, wait_for

QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DISABLE_IMPORT_WARNING": "1"}


class RayCluster:
    """A head with two cores, and nodes that tests add."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._gcs, self._dashboard = free_ports(2)
        self.address = f"http://127.0.0.1:{self._dashboard}"
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """Start the head, and wait until it takes jobs."""
        self._node(
            "--head",
            f"--port={self._gcs}",
            f"--dashboard-port={self._dashboard}",
            f"--temp-dir={self._folder}",
            "--num-cpus=2",
        )
        wait_for(self._answers, why="Ray's job API")

    def _node(self, *options: str) -> subprocess.Popen[bytes]:
        program = str(Path(sys.executable).with_name("ray"))
        names = ["node-manager", "object-manager", "dashboard-agent-grpc", "metrics-export"]
        names += ["dashboard-agent-listen", "runtime-env-agent"]
        ports = [f"--{name}-port={port}" for name, port in zip(names, free_ports(6), strict=True)]
        if "--head" in options:
            ports.append(f"--ray-client-server-port={free_ports(1)[0]}")
        command = (program, "start", "--block", "--disable-usage-stats", *options, *ports)
        child = child_of_tests(command, self._folder / "ray.out", **QUIET)
        self._started.append(child)
        return child

    def _answers(self) -> bool:
        with contextlib.suppress(OSError):
            return bool(urllib.request.urlopen(f"{self.address}/api/jobs/", timeout=5).read())
        return False

    def stop(self) -> None:
        """End all programs, whatever they started too."""
        for child in self._started[::-1]:
            end(child)
            kill_group(child)


def kill_group(child: subprocess.Popen[bytes]) -> None:
    """Kill a node with all that it started: a machine that is gone."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)


@pytest.fixture(scope="session")
def ray() -> Iterator[RayCluster]:
    require([str(Path(sys.executable).with_name("ray"))], "pip install 'rlhf-canary[ray]'")
    # Ray's sockets lie there, and their names must be short.
    folder = Path(tempfile.mkdtemp(prefix="ray-"))
    cluster = RayCluster(folder)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
        shutil.rmtree(folder, ignore_errors=True)


def launcher(
    address: str, in_queue: float = 600.0, for_files: float = 1.0, **keys: object
) -> QueueLauncher:
    """Return the launcher of a matrix, which looks often."""
    waits = {"longest_wait": in_queue / 60, "poll": 0.3, "late": for_files}
    given = Ray.model_validate({"kind": "ray", "address": address, **waits, **keys})
    return QueueLauncher(RayQueue(given), given)
