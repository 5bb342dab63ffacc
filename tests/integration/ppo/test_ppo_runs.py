"""PPO through the command line: whole records, what a user adds to it, several ranks."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.integration.conftest import Finished, run_config, settings
from tests.integration.ppo.watched_ppo import farthest
from tests.integration.run.rank_scripts import TORCHRUN

pytestmark = pytest.mark.train

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """A run with everything on: a tracker, the profiler, data workers, checkpoints."""
    folder = tmp_path_factory.mktemp("whole")

    values = settings(
        "ppo",
        max_steps=6,
        dataset_size=48,
        num_workers=1,
        report_to=["tensorboard"],
        profiler={"enabled": True, "start_step": 4, "num_steps": 1},
        trainer_args={"save_strategy": "steps", "save_steps": 4},
        ppo={"num_mini_batches": 2, "ppo_epochs": 2, "ent_coef": 0.01, "adap_kl_ctrl": True},
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
        return run_config(folder, values)


RL = (
    *("loss", "policy_loss", "value_loss", "entropy", "kl", "kl_sequence", "kl_coef"),
    *("clip_ratio", "value_clip_ratio", "approx_kl", "ratio_deviation", "updates"),
    *("score", "reward", "reward_std", "entropy_update", "values_mean", "explained_variance"),
    *("completion_length", "eos_rate"),
)


def test_every_documented_metric_stands_in_the_record(whole: Finished) -> None:
    assert whole.code == 0, whole.err + whole.log()
    record = whole.record()
    for name in RL:
        assert record.rl[name].count == 3, f"{name} of each timed step"
        assert record.rl[name].mean == record.rl[name].mean, f"{name} is a number"
    assert record.rl["updates"].mean == 4
    assert len(record.stability.loss_values) == 6
    perf = record.perf
    assert perf.samples_per_sec is not None
    samples = 8 * perf.step_time.count / (perf.step_time.mean * perf.step_time.count)
    assert perf.samples_per_sec == pytest.approx(samples)
    for value in (perf.approx_tokens_per_sec, perf.seconds_per_completion_token, perf.max_mem_mb):
        assert value is not None
        assert value > 0
    assert perf.cpu_utilization_avg is not None
    assert record.memory.peak_rss_bytes is not None
    assert record.host.cpu_seconds_per_step is not None
    assert record.host.waiting is not None
    gil = record.host.gil_contention
    assert (gil is None) == ("host.gil_contention" in record.unmeasured)
    # A machine without a GPU says so, and one with it has the figure.
    gpu = perf.gpu_utilization_avg
    assert (gpu is None) == ("perf.gpu_utilization_avg" in record.unmeasured)


def documented(heading: str) -> list[str]:
    """What stands in backticks in the last column of the table below a heading of the page."""
    page = (ROOT / "docs" / "trainers.md").read_text(encoding="utf-8")
    section = page.partition(f"### {heading}\n")[2].partition("\n##")[0]
    cells = [line.split("|")[-2] for line in section.splitlines() if line.startswith("|")]
    return [name for cell in cells[2:] for name in re.findall(r"`([\w.]+)`", cell)]


def test_the_page_names_where_each_metric_stands(whole: Finished) -> None:
    record = whole.record()
    names = documented("What is recorded")
    assert {name.removeprefix("rl.") for name in names if name.startswith("rl.")} == set(record.rl)
    assert len(names) > 30
    for name in names:
        value: Any = record
        for part in name.split("."):
            value = value[part] if isinstance(value, dict) else getattr(value, part)
        assert value is not None or name in record.unmeasured, name


PHASES = (
    *("generation", "reward", "logprob", "advantage", "forward", "backward", "optimizer"),
    *("data", "logging", "checkpoint"),
)


def test_the_phases_of_a_step_are_those_of_rlhf_and_add_up(whole: Finished) -> None:
    record = whole.record()
    for name in PHASES:
        assert record.phases[name] > 0, name
    assert sum(record.phases.values()) == pytest.approx(record.perf.step_time.mean)
    for row in whole.rows():
        phases: Any = row["phases"]
        assert sum(phases.values()) == pytest.approx(row["wall_s"], rel=0.02)
        assert len(row["micro_losses"]) == 4  # type: ignore[arg-type]


# --- several ranks


def told(folder: Path, *command: str) -> list[dict[str, Any]]:
    """What each process of a command that runs `ppo_ranks` leaves."""
    folder.mkdir()
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    return [torch.load(file) for file in sorted(folder.glob("told*.pt"))]


@pytest.mark.slow
def test_two_ranks_update_as_one_with_the_whole_batch(tmp_path: Path) -> None:
    """Advantages are whitened over both; metrics are over the tokens and rows of both, which differ
    in length and score."""
    script = str(Path(__file__).with_name("ppo_ranks.py"))
    (alone,) = told(tmp_path / "one", sys.executable, script, str(tmp_path / "one"), "4")
    ranks = told(tmp_path / "two", *TORCHRUN, script, str(tmp_path / "two"), "2")
    first = [sorted(each["ids"][0].tolist()) for each in ranks]
    assert sorted(first[0] + first[1]) == sorted(alone["ids"][0].tolist())
    assert first[0] != first[1]
    for one in ranks:
        assert one["losses"] == pytest.approx(alone["losses"], rel=1e-3, abs=1e-5)
        for step, wanted in zip(one["steps"], alone["steps"], strict=True):
            assert step == pytest.approx(wanted, rel=1e-3, abs=1e-5)
            assert step["kl"] * step["completion_length"] == pytest.approx(step["kl_sequence"])
    assert farthest(alone["weights"], ranks[0]["weights"]) < 3e-4
