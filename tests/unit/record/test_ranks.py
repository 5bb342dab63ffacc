"""Rows and exact signals of several ranks, merged into those of one run."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from canary.record.ranks import RankSteps, describe_ranks, merged_exact, merged_rows
from canary.record.summary import summarise_ranks
from canary.record.types import RunRecord


def row(step: int, wall: float, wait: float, **changes: Any) -> Any:
    """A row of one rank: what it did not wait, it spent in its forward pass."""
    return {
        "launch": 1,
        "step": step,
        "wall_s": wall,
        "wait_s": wait,
        "phases": {"forward": wall - wait, "backward": wait},
        "loss": 2.0,
        "micro_losses": [1.0, 1.0],
        "grad_norm": 0.5,
        "learning_rate": 0.1,
        "input_tokens": 10,
        "label_tokens": 5,
        "completion_tokens": None,
        "samples": 4,
        "rss_bytes": 100,
        "allocated_bytes": None,
        "reserved_bytes": None,
        "peak_bytes": None,
        "rl": {},
        "time": float(step),
        "collectives": 6,
    } | changes


SLOW_SECOND = {
    0: [row(1, 1.0, 0.8), row(2, 1.0, 0.8)],
    1: [row(1, 1.1, 0.1), row(2, 1.0, 0.0)],
}


def test_a_step_takes_as_long_as_its_busiest_rank_and_its_phases_are_that_ranks() -> None:
    first, second = merged_rows(SLOW_SECOND)
    assert (first["wall_s"], first["slowest"]) == (1.1, 1)
    assert first["phases"] == {"forward": 1.0, "backward": 0.1}
    assert sum(second["phases"].values()) == pytest.approx(second["wall_s"])


def test_tokens_and_samples_are_summed_losses_are_means_and_memory_is_the_largest() -> None:
    ranks = {
        0: [row(1, 1.0, 0.0, loss=1.0, micro_losses=[0.25, 0.75], rss_bytes=7, rl={"kl": 0.0})],
        1: [row(1, 1.0, 0.0, loss=2.0, micro_losses=[0.75, 1.25], rss_bytes=9, rl={"kl": 0.5})],
    }
    (merged,) = merged_rows(ranks)
    assert (merged["input_tokens"], merged["label_tokens"], merged["samples"]) == (20, 10, 8)
    assert merged["completion_tokens"] is None
    assert (merged["loss"], merged["micro_losses"]) == (1.5, [0.5, 1.0])
    assert (merged["rss_bytes"], merged["peak_bytes"]) == (9, None)
    assert merged["rl"] == {"kl": 0.25}


def test_a_nan_on_one_rank_is_a_nan_of_the_step() -> None:
    ranks = {0: [row(1, 1.0, 0.0)], 1: [row(1, 1.0, 0.0, loss="nan")]}
    (merged,) = merged_rows(ranks)
    assert merged["loss"] is not None
    assert math.isnan(merged["loss"])


def test_a_step_that_a_rank_did_not_end_is_no_step_of_the_run() -> None:
    ranks = {0: [row(1, 1.0, 0.0), row(2, 1.0, 0.0)], 1: [row(1, 1.0, 0.0)]}
    assert [merged["step"] for merged in merged_rows(ranks)] == [1]


def test_imbalance_is_the_busiest_rank_over_the_mean() -> None:
    found = describe_ranks(SLOW_SECOND, warmup=1)
    # Busy 0.2 s and 1.0 s: 1.0 / 0.6 - 1.
    assert found["imbalance"] == [pytest.approx(2 / 3)]
    assert found["wait_s"] == [0.8, 0.0]
    assert found["collectives_per_step"] == 6
    assert found["slowest_steps"] == {"0": 0, "1": 1}
    assert found["by_rank"]["1"]["busy_s"] == 1.0


def test_the_record_holds_speeds_of_the_whole_and_what_tells_ranks_apart() -> None:
    record = RunRecord(run_id="r", timestamp="2026-01-01T00:00:00+00:00")
    found = summarise_ranks(record, SLOW_SECOND, warmup=0)
    assert found.perf.step_time.mean == pytest.approx(1.05)
    assert found.perf.approx_tokens_per_sec == pytest.approx(40 / 2.1)
    assert found.ranks["imbalance"]["mean"] == pytest.approx(2 / 3)
    assert found.ranks["wait_s"]["count"] == 4
    assert found.stability.loss_values == [2.0, 2.0]


def test_a_launch_that_begins_its_steps_anew_replaces_its_earlier_rows(tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"

    def write(*rows: dict[str, int]) -> None:
        path.write_text("".join(json.dumps(one) + "\n" for one in rows))

    done = {"launch": 0, "step": 1, "loss": 7}
    helper = [{"launch": 1, "step": step, "loss": 100000} for step in (1, 2, 3)]
    trained = [{"launch": 1, "step": step, "loss": 1} for step in (1, 2, 3, 4)]
    rows = RankSteps(path)
    write(done, *helper)
    assert len(rows.read()[0]) == 4
    write(done, *trained)
    assert rows.read()[0] == [done, *trained]


def test_rows_are_read_on_as_ranks_write_them_and_half_a_line_waits(tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"
    path.write_text(json.dumps(row(1, 1.0, 0.0)) + "\n")
    other = tmp_path / "steps.rank1.jsonl"
    other.write_text('{"step": 1')
    rows = RankSteps(path)
    assert {rank: len(found) for rank, found in rows.read().items()} == {0: 1}
    with other.open("a") as stream:
        stream.write("}\n")
    assert {rank: len(found) for rank, found in rows.read().items()} == {0: 1, 1: 1}
    assert {rank: len(found) for rank, found in rows.read().items()} == {0: 1, 1: 1}


def exact(rank: int, **changes: Any) -> Any:
    return {
        "batches": [[{"sha256": f"{rank}-{step}"}] for step in (1, 2)],
        "model": {"parameters_sha256": "start"},
        "frozen": {"final_parameters_sha256": "end"},
        "first_loss": {"loss": 1.0 + rank, "micro_losses": [1.0 + rank]},
        "trajectory": {
            "losses": [1.0 + rank, 3.0 + rank],
            "grad_norms": [0.5, 0.25],
            "learning_rates": [0.1, 0.1],
            "rl": {"kl": [0.0, float(rank)]},
        },
        "work": {"collectives": 4},
    } | changes


def test_the_exact_lane_sees_the_batches_of_every_rank_in_order() -> None:
    merged = merged_exact({1: exact(1), 0: exact(0)})
    assert [[micro["sha256"] for micro in step] for step in merged["batches"]] == [
        ["0-1", "1-1"],
        ["0-2", "1-2"],
    ]
    assert [micro["rank"] for micro in merged["batches"][0]] == [0, 1]


def test_the_exact_lane_takes_losses_and_work_from_the_first_rank() -> None:
    merged = merged_exact({0: exact(0), 1: exact(1, work={"collectives": 99})})
    assert merged["first_loss"] == {"loss": 1.0, "micro_losses": [1.0]}
    assert merged["trajectory"]["losses"] == [1.0, 3.0]
    assert merged["work"] == {"collectives": 4}
    assert merged["ranks"]["final_parameters_sha256"] == {"0": "end", "1": "end"}


def test_steps_that_began_anew_count_once_also_when_all_are_read_at_once(tmp_path: Path) -> None:
    file = tmp_path / "steps.jsonl"
    steps = [1, 2, 3, 1, 2]
    file.write_text("".join(f'{{"launch": 0, "step": {step}, "wall_s": 1}}\n' for step in steps))
    assert [row["step"] for row in RankSteps(file).read()[0]] == [1, 2]
