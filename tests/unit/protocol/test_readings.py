"""Samples of the machine on their way to the terminal and to the training process."""

from __future__ import annotations

from pathlib import Path

from canary.protocol.heartbeat import ReadingFile, Readings, reading_path


def test_each_reading_is_handed_on_once_and_reaches_the_training_process(tmp_path: Path) -> None:
    now: list[dict[str, float]] = [{}]
    readings = Readings(lambda: now[0], reading_path(tmp_path))
    inside = ReadingFile(tmp_path)
    assert readings.fresh() is None
    assert inside.newest() == {}
    now[0] = {"gpu_utilization": 80.0}
    assert readings.fresh() == {"gpu_utilization": 80.0}
    assert readings.fresh() is None
    assert inside.newest() == {"gpu_utilization": 80.0}
    now[0] = {"gpu_utilization": 20.0}
    assert readings.fresh() == {"gpu_utilization": 20.0}
    assert inside.newest() == {"gpu_utilization": 20.0}


def test_a_reading_that_cannot_be_written_ends_nothing(tmp_path: Path) -> None:
    readings = Readings(lambda: {"cpu_percent": 1.0}, tmp_path / "removed" / "reading.json")
    assert readings.fresh() == {"cpu_percent": 1.0}
