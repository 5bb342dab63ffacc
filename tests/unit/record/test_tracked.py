"""The scalars that trackers are given of a step."""

from __future__ import annotations

import pytest

from canary.record.tracked import alerts_text, row_scalars
from tests.unit.record.test_summary import row

HOST = {"computing_s": 1.0, "waiting_s": 0.3, "others_s": 0.1, "own_cpu_s": 0.7, "run_delay_s": 0.0}


def test_rates_and_utilisation_are_those_of_the_step() -> None:
    found = row_scalars(
        row(3, 0.5, completion_tokens=20, phases_cpu={"forward": 0.6, "data": 0.1}, host=HOST)
    )
    assert found["canary/samples_per_sec"] == 16
    assert found["canary/tokens_per_sec"] == 200
    assert found["canary/completion_tokens_per_sec"] == 40
    assert found["canary/utilization/cpu_percent"] == pytest.approx(140)
    assert found["canary/alerts"] == 0


def test_alerts_are_counted_and_told_in_words() -> None:
    alert = {"severity": "high", "type": "kl_spike", "category": "reward", "message": "it grew"}
    seen = row(3, alerts=[alert | {"step": 3}, alert | {"step": 3, "severity": "low"}])
    assert row_scalars(seen)["canary/alerts"] == 2
    assert alerts_text(seen).splitlines() == [
        "high kl_spike at step 3: it grew  ",
        "low kl_spike at step 3: it grew",
    ]
    assert alerts_text(row(3)) == ""
