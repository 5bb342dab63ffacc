"""Scores of change-point detectors: hand-made detectors get what they must."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from bench import simulated_histories as bench
from bench.change_detectors import Detector, Found
from bench.histories import (
    LABORATORIES,
    PLANTED,
    RUNS,
    Array,
    Event,
    Facts,
    History,
    Laboratory,
    simulate,
)
from bench.simulated_histories import SCORES

STILL = Laboratory("still", lambda _: np.zeros(RUNS))


def always(values: Array, facts: Sequence[Facts]) -> list[Found]:
    return [Found(place, sign) for place in range(len(values)) for sign in (1.0, -1.0)]


def perfect(history: History) -> Detector:
    """Knows the truth of a history, and tells it after three runs."""

    def point(event: Event, count: int) -> list[Found]:
        known = count - event.place
        if event.kind == "spike" or not event.percent or known < 3:
            return []
        over = count - event.last - 1 >= 3
        up = Found(event.place, event.percent, "returned" if over else "confirmed", event.facts[:1])
        return [up, Found(event.last + 1, -event.percent)] if over else [up]

    def detect(values: Array, facts: Sequence[Facts]) -> list[Found]:
        assert history.healthy is not None
        planted = () if (values == history.healthy[: len(values)]).all() else history.planted
        return [it for event in (*history.machine, *planted) for it in point(event, len(values))]

    return detect


def scored(
    laboratory: Laboratory, what: str, made: Callable[[History], Detector], seeds: int = 5
) -> Counter[str]:
    total: Counter[str] = Counter()
    for seed in range(seeds):
        history = simulate(seed, laboratory, what)
        total.update(SCORES[what](made(history), history))
    return total


@pytest.mark.parametrize("laboratory", [LABORATORIES["runner"], STILL], ids=lambda it: it.name)
def test_who_knows_the_truth_has_full_marks(laboratory: Laboratory) -> None:
    healthy = scored(laboratory, "healthy", perfect)
    assert (healthy["false"], healthy["runs"]) == (0, 5 * RUNS)
    assert healthy["shifts"] == healthy["shifts found"] == healthy["shifts named"]
    assert healthy["shifts"] == 10 * laboratory.changes_runner
    for size in ("+3%", "+5%", "+10%"):
        found = scored(laboratory, size, perfect)
        assert found["within 5"] == found["within 10"] == found["error 0"] == found["steps"] == 5
        assert found["blamed"] == 0
    assert scored(laboratory, "two steps", perfect)["both"] == 5
    back = scored(laboratory, "returns", perfect)
    assert (back["returned"], back["step down"]) == (5, 5)
    assert scored(laboratory, "spike", perfect)["alerted"] == 0


def test_who_always_alarms_is_wrong_everywhere_and_finds_nothing_beyond_chance() -> None:
    healthy = scored(STILL, "healthy", lambda _: always, seeds=1)
    assert healthy["false"] == RUNS / (bench.SAME + 1)
    counts = {what: scored(STILL, what, lambda _: always) for what in PLANTED}
    assert counts["+10%"]["within 10"] == counts["two steps"]["both"] == 0
