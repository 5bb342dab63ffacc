"""Healthy trainings raise an alert in at most 1%; most trainings with a fault raise its alert."""

from __future__ import annotations

import pytest

from bench.anomaly import alerts_of
from bench.anomaly_curves import FAULTS, faulty, healthy


@pytest.mark.parametrize("runs", [60, pytest.param(300, marks=pytest.mark.slow)])
def test_of_healthy_trainings_at_most_one_percent_raise_any_alert(runs: int) -> None:
    alarmed = {}
    for number in range(runs):
        if found := alerts_of(healthy(f"test {number}", bool(number % 2))):
            alarmed[number] = found
    assert len(alarmed) <= 0.01 * runs, alarmed


@pytest.mark.parametrize("kind", FAULTS)
def test_most_trainings_with_a_fault_raise_its_alert(kind: str) -> None:
    found = [kind in alerts_of(faulty(kind, f"test {number}")[0]) for number in range(5)]
    assert sum(found) >= 3
