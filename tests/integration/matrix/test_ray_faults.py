"""A real Ray cluster that fails: a node gone, a head that does not answer, a killed matrix."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.matrix.clusters import (
    counted,
    holds_its_lock,
    quiet,
    seen_of,
    until,
    wait_for,
)
from tests.integration.matrix.ray_cluster import RayCluster, launcher


@pytest.mark.slow
def test_a_head_that_is_away_loses_nothing(ray: RayCluster, tmp_path: Path) -> None:
    queue = launcher(tmp_path, ray.address)
    runs, waits = counted(tmp_path, 1, cell="runs"), counted(tmp_path, 0, cell="waits")
    assert queue.start(runs)
    quiet(queue, 0.1)
    wait_for(lambda: holds_its_lock(runs))
    # All that the launcher sees of a cluster is its address.
    client = queue.queue._client  # type: ignore[attr-defined]
    client._address = "http://127.0.0.1:1"
    assert queue.start(waits)
    assert until(queue).attempt == runs, "its files say that it ended"
    assert queue.silent == "the Ray cluster does not answer"
    assert queue.queued() == {"waits": queue.silent}
    client._address = ray.address
    assert until(queue).phase == "ended"
    assert queue.silent == ""
    assert seen_of(tmp_path, "waits") == ["begins", "ends"]
