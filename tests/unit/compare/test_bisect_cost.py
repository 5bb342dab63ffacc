"""How long a bisect takes: the rule, and the launches that it rests on."""

from __future__ import annotations

import math

import pytest

from canary.compare.bisect_cost import (
    LAST_PAIRS,
    MOST_LAUNCHES,
    Effect,
    expected_launches,
    whole_launch_seconds,
)
from canary.record.types import Launch, RunRecord
from tests.unit.comparing import record


@pytest.mark.parametrize(("suspects", "launches"), [(1, 9), (2, 10), (39, 15), (64, 15), (65, 16)])
def test_an_exact_signal_takes_log2_of_the_suspects_ends_and_last_step(
    suspects: int, launches: int
) -> None:
    assert expected_launches(suspects) == launches


@pytest.mark.parametrize(
    ("noise", "change", "measured"),
    [(0.02, 0.05, 28), (0.05, 0.1, 41), (0.05, 0.2, 20), (0.1, 0.2, 43), (0.02, 0.1, 13)],
)
def test_a_noisy_metric_takes_the_launches_of_the_simulation(
    noise: float, change: float, measured: float
) -> None:
    """`bench/simulated_bisects.py` on a steady machine, without the last pairs."""
    found = expected_launches(64, Effect(change, noise)) - 2 * LAST_PAIRS
    assert found == pytest.approx(measured, rel=0.25)


def test_an_improvement_is_as_easy_to_find_as_a_change_for_the_worse() -> None:
    better, worse = (expected_launches(64, Effect(c, 0.05)) for c in (1 / 1.1 - 1, 0.1))
    assert better == worse


def test_odd_numbers_give_no_odd_estimate() -> None:
    assert expected_launches(64, Effect(0.0, 0.05)) == MOST_LAUNCHES
    assert expected_launches(64, Effect(-5.0, 0.0)) < 40
    assert expected_launches(64, Effect(1e9, 0.0)) < 40


def _run(number: int, **seconds: float | None) -> RunRecord:
    run = record(number)
    launches = [
        Launch.model_validate(
            {"index": place, "kind": kind, "status": "completed", "wall_seconds": taken}
        )
        for place, (kind, taken) in enumerate(seconds.items())
    ]
    return run.model_copy(update={"launches": launches})


def test_a_launch_is_counted_whole_and_by_its_kind() -> None:
    runs = [_run(1, probe=10.0, measured=40.0), _run(2, probe=12.0, measured=math.nan)]
    assert whole_launch_seconds(runs, probe=True) == 11.0
    assert whole_launch_seconds(runs, probe=False) == 40.0


def test_without_a_probe_the_measured_launches_count_and_without_any_nothing_does() -> None:
    assert whole_launch_seconds([_run(1, measured=40.0)], probe=True) == 40.0
    assert whole_launch_seconds([_run(1, probe=10.0)], probe=False) is None
    assert whole_launch_seconds([record(1)], probe=True) is None
