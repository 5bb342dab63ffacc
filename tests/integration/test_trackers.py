"""What a tracker is told of a run, read back from TensorBoard's own files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.conftest import STEPS, Finished, run_config, settings

pytestmark = pytest.mark.train


@pytest.fixture(scope="module")
def tracked(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    folder = tmp_path_factory.mktemp("tracked")
    return run_config(folder, settings("sft", report_to=["tensorboard"]))


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    read = EventAccumulator(str(folder))
    read.Reload()
    return {
        tag: [(event.step, event.value) for event in read.Scalars(tag)]
        for tag in read.Tags()["scalars"]
    }


def test_tensorboard_holds_steps_and_exact_signals_after_the_run(tracked: Finished) -> None:
    assert tracked.code == 0, tracked.err
    (launch,) = (tracked.folder / "tensorboard").iterdir()
    found = scalars(launch)
    rows = tracked.rows()
    for name, key in (("step_time_s", "wall_s"), ("memory/rss_bytes", "rss_bytes")):
        told = found[f"train/canary/{name}"]
        assert [step for step, _ in told] == list(range(1, STEPS + 1))
        assert [value for _, value in told] == pytest.approx([row[key] for row in rows])
    for phase in ("data", "forward", "backward", "optimizer"):
        assert len(found[f"train/canary/phase/{phase}_s"]) == STEPS
    assert [value for _, value in found["train/canary/tokens/label_tokens"]] == [
        row["label_tokens"] for row in rows
    ]
    exact = tracked.record().exact
    for name, value in (
        ("first_loss", exact["first_loss"]["loss"]),
        ("first_gradient_norm", exact["first_gradient"]["total"]),
        ("first_update_norm", exact["first_update"]["delta_norm"]),
        ("operators", exact["work"]["operator_total"]),
        ("flops", exact["work"]["flops"]),
        ("tokens_fed", exact["work"]["tokens_fed"]),
    ):
        ((step, told_once),) = found[f"train/canary/exact/{name}"]
        assert step == 0
        assert told_once == pytest.approx(value)
    # The trainer's own log is there too, as often as it logs without the canary.
    assert "train/loss" in found


def test_what_is_told_is_logging_time_and_the_probe_tells_nothing(tracked: Finished) -> None:
    rows = tracked.rows()
    assert all(row["phases"]["logging"] > 0 for row in rows[1:])  # type: ignore[index]
    assert len(list((tracked.folder / "tensorboard").iterdir())) == 1
    opened = tracked.record().exact["calls"]["files_opened"]
    assert opened == 0
