"""Two ranks under gloo: one record of both, in balance or not, on one machine or on two."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from canary.compare.rules.comparison import rule_checks
from canary.record.jsonio import read_rows
from canary.record.types import RunRecord
from tests.integration.conftest import Finished, run_config, settings
from tests.integration.exec.user_scripts import bare, watched
from tests.integration.run.rank_scripts import rank_script

pytestmark = [pytest.mark.train, pytest.mark.slow]


def logged_losses(log: str) -> list[float]:
    """What the trainer itself said, in its own rounding."""
    return [float(text) for text in re.findall(r"'loss': '?([-+.e0-9]+)", log)]


def assert_both_ranks(finished: Finished, steps: int) -> RunRecord:
    """Whatever the trainer, both ranks are in the record."""
    assert finished.code == 0, finished.err
    record = finished.record()
    assert record.status == "completed"
    assert record.env["world_size"] == 2
    assert record.env["packages"]["trl"]
    assert "pytest" not in record.env["packages"]
    assert record.env["distributed"]["backend"] == "gloo"
    assert {k: record.ranks[k] for k in ("world_size", "nodes", "backend")} == {
        "world_size": 2,
        "nodes": 1,
        "backend": "gloo",
    }
    assert len(record.stability.loss_values) == steps
    assert record.ranks["collectives_per_step"] >= 1
    assert set(record.ranks["by_rank"]) == {"0", "1"}
    assert sum(record.ranks["slowest_steps"].values()) == record.perf.step_time.count
    assert "  ranks       2, imbalance" in finished.err
    return record


@pytest.fixture(scope="module")
def sft(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    values = settings("sft", dataset_size=64, trainer_args={"logging_steps": 1})
    return run_config(tmp_path_factory.mktemp("two"), values, "--nproc", "2")


@pytest.mark.end_to_end
def test_two_ranks_leave_one_record_with_losses_as_the_trainer_logs_them(sft: Finished) -> None:
    record = assert_both_ranks(sft, 6)
    logged = logged_losses(sft.log())[-6:]
    assert record.stability.loss_values == pytest.approx(logged, rel=1e-3)
    # Each rank has losses of its own, and the trainer logs their mean.
    ranks = [list(read_rows(sft.folder / f"steps{name}.jsonl")) for name in ("", ".rank1")]
    assert ranks[0][0]["loss"] != ranks[1][0]["loss"]
    tokens = sum(row["input_tokens"] for rows in ranks for row in rows)
    assert record.tokens["input_tokens"] == tokens


@pytest.mark.end_to_end
def test_the_exact_lane_holds_the_batches_of_both_and_counts_what_the_reducer_does(
    sft: Finished,
) -> None:
    exact = sft.record().exact
    assert [micro["rank"] for micro in exact["batches"][0]] == [0, 0, 1, 1]
    assert len({micro["sha256"] for micro in exact["batches"][0]}) == 4
    operators = exact["work"]["operators"]
    assert operators["c10d.allreduce_.default"] >= 1
    assert exact["work"]["collectives"] >= operators["c10d.allreduce_.default"]
    checks = {check.name: check for check in rule_checks([sft.record()])}
    assert checks["ranks_agree"].status == "pass", checks["ranks_agree"].message
    record = sft.record()
    assert sum(record.phases.values()) == pytest.approx(record.perf.step_time.mean)


def test_grpo_runs_on_two_ranks(tmp_path: Path) -> None:
    finished = run_config(tmp_path, settings("grpo", dataset_size=64, look_steps=0, nproc=2))
    record = assert_both_ranks(finished, 6)
    assert record.rl["reward"].count == record.perf.step_time.count
    assert record.tokens["completion_tokens"] > 0


def test_a_rank_that_sleeps_shows_as_imbalance_and_the_other_as_waiting(tmp_path: Path) -> None:
    # Long beside what a step computes, on a busy machine too.
    command = rank_script(tmp_path, steps=5, each_step="time.sleep(1)")
    ended = watched(tmp_path, *command)
    assert ended.code == 0, ended.err
    ranks = ended.record().ranks
    assert ranks["slowest_steps"]["1"] == sum(ranks["slowest_steps"].values())
    # Perfectly idle, the other rank would make it 100%.
    assert ranks["imbalance"]["mean"] > 0.3
    waits = {rank: found["wait_s"] for rank, found in ranks["by_rank"].items()}
    assert waits["0"] > 0.5
    assert waits["0"] > 2 * waits["1"]


def test_losses_on_two_ranks_are_those_of_the_command_alone(tmp_path: Path) -> None:
    command = rank_script(tmp_path)
    alone, with_canary = bare(tmp_path, *command), watched(tmp_path, *command)
    assert (alone.code, with_canary.code) == (0, 0), with_canary.err
    assert with_canary.line("losses") == alone.line("losses")
