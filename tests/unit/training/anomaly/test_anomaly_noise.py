"""Noise is no anomaly: 200 runs of it, white and correlated, raise an alert in at most 1%."""

from __future__ import annotations

import pytest

from bench.anomaly import alerts_of, noisy_run

PHIS = (0.0, 0.5, 0.8, 0.9)
SDS = (0.01, 0.05, 0.1, 0.2)


@pytest.mark.parametrize("runs", [80, pytest.param(200, marks=pytest.mark.slow)])
def test_of_runs_of_noise_at_most_one_percent_raise_any_alert(runs: int) -> None:
    alarmed = {}
    for seed in range(runs):
        phi, sd = PHIS[seed % len(PHIS)], SDS[seed // len(PHIS) % len(SDS)]
        found = alerts_of(noisy_run(seed, phi, sd, 200, around_zero=bool(seed % 3 == 0)))
        if found:
            alarmed[seed, phi, sd] = found
    assert len(alarmed) <= 0.01 * runs, alarmed


def test_noise_of_a_tenth_of_a_percent_is_no_plateau() -> None:
    alarmed = [seed for seed in range(40) if alerts_of(noisy_run(seed, 0.5, 0.001, 200))]
    assert not alarmed
