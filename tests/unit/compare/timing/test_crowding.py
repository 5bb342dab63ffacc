"""Other work on the machine: a slowdown that it explains is not judged, a larger one is."""

from __future__ import annotations

import pytest

from canary.compare.stats import compare_to_baseline
from canary.compare.thresholds import DEFAULT_THRESHOLDS
from canary.record.types import RunRecord
from tests.unit.comparing import records


def side(
    times: list[float], first: int, *, delay: float | None, own: float, machine: float
) -> list[RunRecord]:
    made = records(times, first)
    for record in made:
        record.host.run_delay = delay
        record.env["cpu_count"] = 2
        record.memory.sampled = {
            "cpu_percent": {"mean": own, "max": own, "samples": 9},
            "machine_cpu_percent": {"mean": machine, "max": machine, "samples": 9},
        }
    return made


QUIET = side([0.1] * 5, 0, delay=0.02, own=95.0, machine=50.0)


@pytest.mark.parametrize(
    ("seconds", "delay", "own", "machine", "status"),
    [
        (0.3, 0.6, 40.0, 100.0, "inconclusive"),
        (1.0, 0.6, 40.0, 100.0, "fail"),
        (0.3, 0.02, 95.0, 50.0, "fail"),
        # Its own workers take the cores: that is the change's matter.
        (0.3, 0.6, 195.0, 100.0, "fail"),
        (0.3, None, 40.0, 100.0, "fail"),
        (0.1, 0.6, 40.0, 100.0, "pass"),
    ],
)
def test_what_other_work_explains_is_not_judged(
    seconds: float, delay: float | None, own: float, machine: float, status: str
) -> None:
    current = side([seconds] * 5, 100, delay=delay, own=own, machine=machine)
    found = compare_to_baseline(current, QUIET)
    assert found.check("step_time_median").status == status
    if status == "inconclusive":
        assert "waited for a core 60% of the time, 2% in the baseline" in found.first_line
        assert found.check("tokens_per_sec").status == "inconclusive"


def test_pairs_share_their_machine_and_are_judged() -> None:
    current = side([0.3] * 5, 100, delay=0.6, own=40.0, machine=100.0)
    found = compare_to_baseline(current, QUIET, DEFAULT_THRESHOLDS, paired=True)
    assert found.check("step_time_median").status == "fail"


@pytest.mark.parametrize(
    ("threads", "was", "now", "seconds", "status"),
    [
        # Equal runs: (share without a core, own CPU, the machine's), beside strangers on both sides
        (2, (0.67, 63.0, 100.0), (0.48, 100.0, 100.0), 0.28, "inconclusive"),
        (2, (0.05, 100.0, 95.0), (0.48, 100.0, 100.0), 0.28, "inconclusive"),
        (2, (0.67, 63.0, 100.0), (0.48, 100.0, 100.0), 0.1, "pass"),
        # Threads and processes of its own take the cores from it, and not the strangers alone.
        (2, (0.48, 100.0, 100.0), (0.76, 95.0, 100.0), 0.28, "fail"),
        (2, (0.02, 150.0, 100.0), (0.60, 160.0, 100.0), 0.28, "fail"),
        (1, (0.50, 50.0, 100.0), (0.52, 48.0, 100.0), 0.14, "inconclusive"),
        (1, (0.50, 50.0, 100.0), (0.52, 48.0, 100.0), 0.28, "fail"),
    ],
)
def test_a_side_that_others_crowd_is_not_judged_whatever_its_baseline_waited(
    threads: int,
    was: tuple[float, float, float],
    now: tuple[float, float, float],
    seconds: float,
    status: str,
) -> None:
    sides = [
        side([time] * 5, first, delay=delay, own=own, machine=machine)
        for time, first, (delay, own, machine) in ((0.1, 0, was), (seconds, 100, now))
    ]
    for record in (*sides[0], *sides[1]):
        record.env["device"] = {"type": "cpu", "threads": threads}
    found = compare_to_baseline(sides[1], sides[0])
    assert found.check("step_time_median").status == status
    assert found.verdict == {"fail": "regression"}.get(status, status)


def test_cpu_time_does_not_pass_a_real_slowdown_of_a_crowded_side() -> None:
    """A record that tells of waiting takes a failure back to undecided, and no further."""
    sides = [
        side([time] * 5, first, delay=0.5, own=50.0, machine=100.0)
        for time, first in ((0.1, 0), (0.14, 100))
    ]
    for record in (*sides[0], *sides[1]):
        record.env["device"] = {"type": "cpu", "threads": 1}
        launch = record.launches[0]
        launch.cpu_s_per_step = launch.on_core_step_time_s = 0.05
    found = compare_to_baseline(sides[1], sides[0])
    assert found.check("cpu_time").status == "pass"
    assert found.check("step_time_median").status == "inconclusive"
    assert found.verdict == "inconclusive"


@pytest.mark.parametrize(
    ("threads", "device", "seconds", "status"),
    [
        (1, "cpu", 2.0, "fail"),
        (2, "cpu", 2.0, "inconclusive"),
        (2, "cpu", 0.1, "pass"),
        (2, "cuda", 2.0, "fail"),
    ],
)
def test_threads_that_share_an_operator_wait_for_each_other(
    threads: int, device: str, seconds: float, status: str
) -> None:
    current = side([seconds] * 5, 100, delay=0.9, own=20.0, machine=100.0)
    for record in current:
        record.env["device"] = {"type": device, "threads": threads}
    baseline = side([0.1] * 5, 0, delay=0.02, own=95.0, machine=50.0)
    for record in baseline:
        record.env["device"] = {"type": device, "threads": threads}
    found = compare_to_baseline(current, baseline)
    assert found.check("step_time_median").status == status
