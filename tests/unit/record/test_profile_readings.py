"""The quick diagnosis: each limit of the documentation, from both sides."""

from __future__ import annotations

from typing import Any

import pytest

from canary.record.profile_readings import Reading, Topic, readings
from canary.record.types import Conversions, Copies, OperatorRow, Profiler


def profiled(**changes: Any) -> Profiler:
    """A device at work for 100 of 120 ms, in nothing remarkable."""
    values: dict[str, Any] = {
        "steps": [20, 21],
        "wall_ms": 120.0,
        "cuda_time_total_ms": 100.0,
        "self_cuda_time_total_ms": 100.0,
        "cpu_time_total_ms": 100.0,
        "host_waits_ms": 0.0,
        "device_idle_pct": 16.0,
        "copies": Copies(count=4, time_ms=5.0, bytes=2**20),
        "conversions": Conversions(count=9, time_ms=2.0),
        "operator_kinds": 2,
        "top_cuda_ops": [
            OperatorRow(name="aten::mm", self_cuda_time_ms=40.0, self_cpu_time_ms=1.0, count=8)
        ],
        "top_cpu_ops": [
            OperatorRow(name="aten::add", self_cuda_time_ms=1.0, self_cpu_time_ms=90.0, count=8)
        ],
    }
    return Profiler(**(values | changes))


def reading(topic: Topic, **changes: Any) -> Reading:
    (found,) = [item for item in readings(profiled(**changes)) if item.topic == topic]
    return found


@pytest.mark.parametrize(
    ("host", "waits", "words", "concern"),
    [
        (201.0, 0.0, "host-bound", True),
        (200.0, 0.0, "balanced", False),
        (50.0, 0.0, "balanced", False),
        (49.0, 0.0, "device-bound", False),
        (500.0, 460.0, "device-bound", False),
    ],
)
def test_the_host_is_weighed_against_the_device_without_its_waiting(
    host: float, waits: float, words: str, concern: bool
) -> None:
    found = reading("balance", cpu_time_total_ms=host, host_waits_ms=waits)
    assert found.text.startswith(words)
    assert found.concern is concern
    assert found.value == pytest.approx((host - waits) / 100)


@pytest.mark.parametrize(
    ("topic", "below", "above", "words"),
    [
        (
            "copies",
            {"copies": Copies(count=4, time_ms=30.0)},
            {"copies": Copies(count=4, time_ms=30.1, bytes=3 << 20)},
            "(30.1 ms, copies: 4, 3.0 MB), above 30%",
        ),
        (
            "conversions",
            {"conversions": Conversions(count=9, time_ms=10.0)},
            {"conversions": Conversions(count=9, time_ms=10.1)},
            "10.1% of the device's time (10.1 ms, calls: 9), above 10%",
        ),
        ("idle", {"device_idle_pct": 40.0}, {"device_idle_pct": 41.0}, "41% of the wall time"),
        (
            "operator",
            {"self_cuda_time_total_ms": 80.0},
            {"self_cuda_time_total_ms": 79.0},
            "one operator dominates: aten::mm takes 51%",
        ),
    ],
)
def test_a_concern_begins_above_its_limit(
    topic: Topic, below: dict[str, Any], above: dict[str, Any], words: str
) -> None:
    assert not reading(topic, **below).concern
    found = reading(topic, **above)
    assert found.concern
    assert words in found.text


def test_a_cpu_is_said_to_be_one_and_judged_by_what_it_has() -> None:
    found = readings(
        profiled(
            cuda_time_total_ms=None,
            self_cuda_time_total_ms=None,
            device_idle_pct=None,
            copies=None,
            host_waits_ms=None,
            top_cuda_ops=[],
        )
    )
    assert [item.topic for item in found] == ["balance", "conversions", "operator"]
    assert found[0].text.startswith("CPU only: device time, copies")
    assert "100.0 of 120.0 ms wall time (83%)" in found[0].text
    assert "2.0% of the operators' time" in found[1].text
    assert found[2].concern
    assert "aten::add takes 90%" in found[2].text
