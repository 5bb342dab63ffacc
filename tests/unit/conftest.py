"""Generated examples are the same in every run, and may take a busy machine as long as they do.
Pages whose words and numbers are read need no pictures."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "steady", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("steady")


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Charts keep their numbers and get an empty picture."""
    monkeypatch.setattr("canary.report.charts.chart.Chart.svg", lambda _: "<svg ></svg>")
