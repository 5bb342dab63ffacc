"""How long a bisect takes: the rule, and the launches that it rests on."""

from __future__ import annotations

import math

import pytest

from canary.compare.bisect_cost import (
    MOST_LAUNCHES,
    Effect,
    expected_launches,
    whole_launch_seconds,
)
from canary.record.types import Launch, RunRecord
from tests.unit.comparing import record


@pytest.mark.parametrize(("suspects", "launches"), [(1, 9), (39, 15), (65, 16)])
def test_an_exact_signal_takes_log2_of_the_suspects_ends_and_last_step(
    suspects: int, launches: int
) -> None:
    assert expected_launches(suspects) == launches


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
