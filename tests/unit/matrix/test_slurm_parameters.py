"""What Slurm is asked for, as submitit writes it into the job's script."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from canary.matrix.attempt import Attempt
from canary.matrix.document import Slurm
from canary.matrix.slurm import SlurmQueue

submitit = pytest.importorskip("submitit.slurm.slurm")

PLAIN = Attempt("one", Path("/shared/one/1"), ("true",), Path("/shared"), {}, 600.0, cores=4)


def script(monkeypatch: pytest.MonkeyPatch, one: Attempt, **keys: Any) -> str:
    monkeypatch.setattr(SlurmQueue, "_require", lambda self: None)
    queue = SlurmQueue(Slurm(kind="slurm", **keys), Path("/shared"))
    parameters = queue._parameters("canary-1", one)
    return str(submitit._make_sbatch_string(command="run", folder="/shared/jobs", **parameters))


def test_a_cell_on_gpus_of_a_type(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = script(
        monkeypatch,
        replace(PLAIN, gpus=2, device="a100"),
        partition="gpu",
        account="team",
        memory=1.5,
        options={"exclusive": True, "reservation": "night run"},
    )
    for line in (
        "--gpus-per-node=a100:2",
        "--nodes=1",
        "--ntasks-per-node=1",
        "--cpus-per-task=4",
        "--partition=gpu",
        "--account=team",
        "--mem=1536M",
        "--exclusive",
        "--reservation='night run'",
        "--requeue",
        "--job-name=canary-1",
    ):
        assert f"#SBATCH {line}\n" in asked
    # The try's own limit comes first, so that its answer can say it.
    assert "#SBATCH --time=16\n" in asked


def test_without_a_gpu_none_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = script(monkeypatch, PLAIN, requeue=False)
    assert "#SBATCH --no-requeue\n" in asked
    assert "gpus" not in asked
