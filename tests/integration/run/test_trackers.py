"""What a tracker is told of a run, read back from TensorBoard's own files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.integration.conftest import LOOKED, STEPS, Finished, run_config, settings

pytestmark = pytest.mark.train


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("logs")


@pytest.fixture(scope="module")
def tracked(tmp_path_factory: pytest.TempPathFactory, logs: Path) -> Finished:
    """An online trainer, which has every stream there is, with a folder for its curves."""
    folder = tmp_path_factory.mktemp("tracked")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TENSORBOARD_LOGGING_DIR", str(logs))
        return run_config(folder, settings("grpo", report_to=["tensorboard"]))


def read(folder: Path) -> EventAccumulator:
    found = EventAccumulator(str(folder))
    found.Reload()
    return found


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Points of each stream."""
    found = read(folder)
    return {
        tag: [(event.step, event.value) for event in found.Scalars(tag)]
        for tag in found.Tags()["scalars"]
    }


def streams(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Those that are the canary's, without the part of the name that they all have."""
    start = "train/canary/"
    every = scalars(folder).items()
    return {tag.removeprefix(start): points for tag, points in every if tag.startswith(start)}


def test_every_stream_has_a_point_a_step(tracked: Finished, logs: Path) -> None:
    assert tracked.code == 0, tracked.err
    found = streams(logs)
    rows: list[dict[str, Any]] = tracked.rows()
    told: dict[str, list[float]] = {
        "loss": [row["loss"] for row in rows],
        "grad_norm": [row["grad_norm"] for row in rows],
        "learning_rate": [row["learning_rate"] for row in rows],
        "tokens/label_tokens": [row["label_tokens"] for row in rows],
        "memory/rss_bytes": [row["rss_bytes"] for row in rows],
        "rl/reward": [row["rl"]["reward"] for row in rows],
        "rl/kl": [row["rl"]["kl"] for row in rows],
        "rl/entropy": [row["rl"]["entropy"] for row in rows],
        "alerts": [len(row.get("alerts", ())) for row in rows],
    }
    timed = rows[LOOKED:]
    speed = {
        "step_time_s": [row["wall_s"] for row in timed],
        "samples_per_sec": [row["samples"] / row["wall_s"] for row in timed],
        "tokens_per_sec": [row["input_tokens"] / row["wall_s"] for row in timed],
        "completion_tokens_per_sec": [row["completion_tokens"] / row["wall_s"] for row in timed],
        "utilization/cpu_percent": [
            100 * sum(row["phases_cpu"].values()) / row["wall_s"] for row in timed
        ],
    }
    for phase in ("data", "generation", "reward", "logprob", "forward", "backward", "optimizer"):
        speed[f"phase/{phase}_s"] = [row["phases"][phase] for row in timed]
    for name, values in (told | speed).items():
        first = LOOKED + 1 if name in speed else 1
        assert [step for step, _ in found[name]] == list(range(first, STEPS + 1)), name
        assert [value for _, value in found[name]] == pytest.approx(values), name
    # What the parent samples reaches the training process; a step may end before the first sample.
    for name in ("utilization/tree_cpu_percent", "utilization/machine_cpu_percent"):
        sampled = [step for step, _ in found[name]]
        assert sampled, name
        assert sampled == list(range(sampled[0], STEPS + 1)), name
    assert not [name for name in found if "gpu" in name], "there is none"


def test_exact_signals_stand_at_the_first_step_after_the_look(
    tracked: Finished, logs: Path
) -> None:
    found = streams(logs)
    exact = tracked.record().exact
    for name, value in (
        ("first_loss", exact["first_loss"]["loss"]),
        ("first_gradient_norm", exact["first_gradient"]["total"]),
        ("first_update_norm", exact["first_update"]["delta_norm"]),
        ("operators", exact["work"]["operator_total"]),
        ("flops", exact["work"]["flops"]),
        ("tokens_fed", exact["work"]["tokens_fed"]),
    ):
        ((step, told_once),) = found[f"exact/{name}"]
        assert step == len(exact["trajectory"]["losses"]) + 1
        assert told_once == pytest.approx(value)
    # The trainer's own log is there too, as often as it logs without the canary.
    assert "train/loss" in scalars(logs)


def test_what_is_told_is_logging_time_and_no_stream_of_another_process(
    tracked: Finished, logs: Path
) -> None:
    rows = tracked.rows()
    assert all(row["phases"]["logging"] > 0 for row in rows[1:])  # type: ignore[index]
    assert all(one.is_file() for one in logs.iterdir())
    assert not (tracked.folder / "tensorboard").exists()
