"""One canary on two nodes of a real Slurm: one record, equal to that of two agents by hand."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from canary.record.folder import load_record
from tests.integration.conftest import settings, write_config
from tests.integration.exec.user_scripts import PYTHON
from tests.integration.matrix.slurm_cluster import SlurmCluster
from tests.integration.run.test_ranks import on_two_machines

pytestmark = [pytest.mark.train, pytest.mark.slow]

MATRIX = """
cells: [{config: canary.yaml, nodes: 2}]
launcher: {kind: slurm, device: cpu, poll: 0.5, late: 5}
"""


def test_two_nodes_leave_one_record(slurm: SlurmCluster, tmp_path: Path) -> None:
    values = settings("sft", dataset_size=64, look_steps=2, max_steps=12)
    (tmp_path / "matrix.yaml").write_text(MATRIX)
    write_config(tmp_path, values).rename(tmp_path / "canary.yaml")
    words = ["matrix", "matrix.yaml", "--format", "json", "-q", "-o", "out"]
    done = subprocess.run(
        [PYTHON, "-m", "canary.cli", *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    [cell] = json.loads(done.stdout)["cells"]
    record = load_record(Path(cell["folder"]))
    assert (record.ranks["world_size"], record.ranks["nodes"]) == (2, 2)
    assert set(record.ranks["by_rank"]) == {"0", "1"}
    assert [one["rank"] for one in record.exact["batches"][0]] == [0, 0, 1, 1]
    (tmp_path / "hand").mkdir()
    by_hand, other = on_two_machines(tmp_path / "hand", values)
    assert (by_hand.code, other.code) == (0, 0), by_hand.err + other.err
    expected = by_hand.record()
    # Communication threads free buffers at random times: what is alive may differ by a few bytes.
    alike = [{**one.exact, "memory": None} for one in (record, expected)]
    assert alike[0] == alike[1]
    assert record.stability.loss_values == expected.stability.loss_values
