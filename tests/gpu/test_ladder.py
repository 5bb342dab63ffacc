"""The ladder on a device: what a device has is not skipped, and every launch is on it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from canary.config.schema import TrainingType
from canary.record.folder import load_record
from tests.integration.conftest import canary, settings, write_config

pytestmark = [pytest.mark.gpu, pytest.mark.train, pytest.mark.slow]


def climbed(folder: Path, device: str, training_type: TrainingType, levels: str) -> dict[str, Any]:
    """The ladder's JSON."""
    values = settings(training_type, device=device, max_steps=10, dataset_size=80, look_steps=3)
    path = write_config(folder, values | {"metrics_warmup_steps": 2})
    words = ("--levels", levels, "--rounds", "1", "--format", "json", "-o", str(folder / "out"))
    done = canary("ladder", str(path), *words, timeout=1500)
    assert done.code == 0, done.err
    document = json.loads(done.out)
    assert isinstance(document, dict)
    return document


@pytest.mark.parametrize("training_type", ["sft", "ppo"])
def test_the_levels_climb_on_the_device(
    training_type: TrainingType, tmp_path: Path, device: str
) -> None:
    names = ["baseline", "basic", "advanced"] if device == "cuda" else ["baseline", "basic"]
    found = climbed(tmp_path, device, training_type, ",".join(names))
    assert [level["level"] for level in found["levels"]] == names
    assert found["passed"], found["answer"]
    for level in found["levels"]:
        assert not level["problem"]
        assert level["speeds"][0] > 0
        assert level["figures"]["step_s"] > 0
    records = [load_record(path) for path in Path(found["folder"]).glob("2*")]
    completed = [record for record in records if record.status == "completed"]
    assert len(completed) > len(names)
    assert {record.env["device"]["type"] for record in completed} == {device}
    if device == "cpu":
        return
    assert found["machine"]["gpus"]
    skipped = {one["switch"] for level in found["levels"] for one in level["skipped"]}
    assert "pinned memory" not in skipped
    timed = [record.perf for record in completed if ".round" in record.name]
    assert {perf.max_mem_kind for perf in timed} == {"device"}
    assert all(perf.gpu_utilization_avg is not None for perf in timed)


def test_bfloat16_is_tried_and_guarded_in_its_own_width(tmp_path: Path, device: str) -> None:
    if device == "cpu":
        pytest.skip("bfloat16 is slower on most CPUs, and is then left out")
    found = climbed(tmp_path, device, "sft", "baseline,advanced")
    (top,) = [level for level in found["levels"] if level["level"] == "advanced"]
    assert "bfloat16" in {one["switch"] for one in top["tried"]}
    assert top["guarded"]["exact"]["first"] is None
