"""The record of a run takes its rows from the disk."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from canary.protocol.heartbeat import Readings, reading_path
from canary.protocol.job import Result
from canary.protocol.record_writer import RecordWriter
from canary.record.folder import RunFolder
from canary.record.step_row import Row


class Writer(RecordWriter):
    def warmup(self, rows: Sequence[Row]) -> int:
        return 0


def test_the_last_record_forgets_rows_that_the_training_took_back(tmp_path: Path) -> None:
    """A loop that is left out may have rows as long as those that replace them, to the byte."""
    folder = RunFolder.create(tmp_path, "20260101-000000-own-abcd")
    writer = Writer(folder, "own", {})
    writer.add_launch(0)

    def write(*losses: float) -> None:
        rows = [
            {"launch": 0, "step": step, "loss": loss, "wall_s": 0.1, "phases": {}}
            for step, loss in enumerate(losses, 1)
        ]
        folder.steps.write_text("".join(json.dumps(row) + "\n" for row in rows))

    write(7.5)
    writer.write()
    write(1.5, 1.25)
    writer.write()
    record = writer.finish(Result("completed"))
    assert record.stability.loss_values == [1.5, 1.25]


def test_each_reading_is_handed_on_once_and_written(tmp_path: Path) -> None:
    now: list[dict[str, float]] = [{}]
    file = reading_path(tmp_path)
    readings = Readings(lambda: now[0], file)
    assert readings.fresh() is None
    assert not file.exists()
    now[0] = {"gpu_utilization": 80.0}
    assert readings.fresh() == {"gpu_utilization": 80.0}
    assert readings.fresh() is None
    assert json.loads(file.read_text()) == {"gpu_utilization": 80.0}
    now[0] = {"gpu_utilization": 20.0}
    assert readings.fresh() == {"gpu_utilization": 20.0}
    assert json.loads(file.read_text()) == {"gpu_utilization": 20.0}


def test_a_reading_that_cannot_be_written_ends_nothing(tmp_path: Path) -> None:
    readings = Readings(lambda: {"cpu_percent": 1.0}, tmp_path / "removed" / "reading.json")
    assert readings.fresh() == {"cpu_percent": 1.0}
