"""A record whose parts cannot belong to one run is refused where it is read."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from canary.errors import RecordError
from canary.record.folder import load_record, parse_record

ROOT = Path(__file__).parents[3]
FILES = ("baselines/examples/sft_smoke.json", "tests/data/ppo_look.json")


def stored(file: str = FILES[0]) -> Any:
    document = json.loads((ROOT / file).read_text())
    return document.get("record", document)


@pytest.mark.parametrize("file", FILES)
def test_a_record_that_a_run_wrote_is_read(file: str) -> None:
    parse_record(stored(file), Path(file))


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("perf", "step_time", "count"), 10_000),
        (("perf", "step_time", "mean"), 1e9),
        (("perf", "step_time", "p95"), 0.0),
        (("stability", "loss_values"), [1.0] * 10_000),
        (("stability", "grad_norm_values"), [1.0] * 10_000),
        (("stability", "nan_steps"), 3),
        (("stability", "final_loss"), 1e9),
        (("launches", 0, "look_steps"), 10_000),
        (("alert_summary",), {"total": 3, "by_category": {"gradient": 2}, "by_severity": {}}),
    ],
)
def test_a_record_that_contradicts_itself_is_refused_with_file_and_key(
    place: tuple[str | int, ...], value: Any, tmp_path: Path
) -> None:
    document = copy.deepcopy(stored())
    part: Any = document
    for key in place[:-1]:
        part = part[key]
    part[place[-1]] = value
    file = tmp_path / "metrics.json"
    file.write_text(json.dumps(document))
    with pytest.raises(RecordError) as refused:
        load_record(file)
    said = str(refused.value)
    assert str(file) in said
    assert str(place[0]) in said
    assert "contradicts itself" in said
    assert "\n" not in said


def test_launches_with_fewer_steps_than_were_timed_are_refused() -> None:
    document = copy.deepcopy(stored())
    document["launches"] = [launch | {"steps": 0} for launch in document["launches"]]
    with pytest.raises(RecordError, match="contradicts itself"):
        parse_record(document, Path("metrics.json"))


def test_a_run_that_only_began_is_read() -> None:
    document = copy.deepcopy(stored()) | {"status": "running", "owner": None}
    for key in ("perf", "stability", "alert_summary", "tokens", "alerts"):
        document.pop(key, None)
    document["launches"] = [{"index": 1, "status": "running"}]
    assert parse_record(document, Path("metrics.json")).launches[0].steps == 0
