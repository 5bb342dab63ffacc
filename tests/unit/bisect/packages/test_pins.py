"""The packages of one end."""

from __future__ import annotations

from pathlib import Path

from canary.baseline.history import Context, save
from canary.bisect.packages.pins import read_pins
from tests.unit.comparing import record


def test_a_file_of_a_history_is_a_record(tmp_path: Path) -> None:
    """`canary explain` names it where the baseline is a history."""
    run = record(1)
    run.env["packages"] = {"torch": "2.6.0", "trl": "1.0.0", "peft": None}
    stored = save(tmp_path, run, context=Context(commit="a" * 40))
    pins = read_pins(stored)
    assert {name: str(version) for name, version in pins.versions.items()} == {
        "torch": "2.6.0",
        "trl": "1.0.0",
    }
    assert pins.record is not None
    assert pins.record.git["sha"] == "a" * 40
