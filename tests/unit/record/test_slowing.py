"""A run that slows down within itself is told while it runs; a machine that fills up, not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from bench.anomaly import SDS, SHIFTS, own_seconds
from canary.anomaly import AdvancedAnomalyDetector
from canary.record.slowing import own_seconds as of_row
from canary.record.slowing import slowing
from canary.record.summary import launch_timing
from canary.training.anomaly.detectors.slowing import SlowingDetector
from canary.training.anomaly.observation import Observation, from_row
from tests.unit.comparing import records
from tests.unit.observing import before_after, run, types, wobble


def row(step: int, own_s: float, *, delay_s: float = 0.0, **more: Any) -> Any:
    """As a CPU's; the machine took `delay_s` of the wall time besides."""
    phases = {"forward": own_s + delay_s}
    host = {"run_delay_s": delay_s}
    return {
        "launch": 1,
        "step": step,
        "wall_s": own_s + delay_s,
        "phases": phases,
        "phases_cpu": {"forward": own_s},
        "host": host,
        "peak_bytes": None,
        "input_tokens": 400,
        "samples": 8,
    } | more


def rows(steps: int, own_s: Callable[[int], float], **more: Any) -> list[Any]:
    return [row(step, own_s(step), **more) for step in range(1, steps + 1)]


def late(before: float, after: float, change: int) -> Callable[[int], float]:
    return before_after(wobble(before), wobble(after, seed=1), change)


def test_time_without_a_core_and_checkpoints_are_not_the_steps_own() -> None:
    assert of_row(row(1, 0.1, delay_s=0.3)) == pytest.approx(0.1)
    saved = row(1, 0.1, phases={"forward": 0.06, "checkpoint": 0.04})
    assert of_row(saved) == pytest.approx(0.06)
    assert of_row(row(1, 0.1, profiled=True)) is None
    assert of_row(row(1, 0.1, delay_s=0.3, peak_bytes=1 << 30)) == pytest.approx(0.4), "a device's"
    assert of_row(row(1, 0.1, delay_s=0.3, host={"run_delay_s": None})) == pytest.approx(0.1)
    assert of_row({"wall_s": 0.1, "step": 1}) is None
    two: dict[str, Any] = {"phases_cpu": {"forward": 0.2}}
    assert of_row(row(1, 0.1, **two, host={"run_delay_s": 0.0, "own_cpu_s": 0.1}))
    crowded = {"run_delay_s": 0.3, "own_cpu_s": 0.1}
    assert of_row(row(1, 0.1, delay_s=0.3, **two, host=crowded)) is None, "threads that wait"


def test_a_run_that_slows_down_from_its_middle_on_is_told_while_it_runs() -> None:
    detector = AdvancedAnomalyDetector(save_alerts=False)
    seen = [
        alert
        for each in rows(60, late(0.102, 0.269, 31))
        for alert in detector.judge(from_row(each))
    ]
    (alert,) = [one for one in seen if one.type == "slowing_down"]
    assert 31 < alert.step < 50
    assert "a step takes 2" in alert.message
    assert "up from 10" in alert.message
    assert "slowing_down" in types(run(40, own_s=late(0.1, 0.27, 21)))
    assert "slowing_down" in types(run(200, own_s=lambda step: 0.1 + 0.002 * step))


def test_what_is_not_the_trainings_own_slowness_is_not_told() -> None:
    def told(many: list[Any]) -> bool:
        detector = SlowingDetector()
        return any([*detector.observe(from_row(each))] for each in many)

    crowded = [
        row(step, wobble(0.1)(step), delay_s=0.3 if step > 40 else 0.0) for step in range(1, 101)
    ]
    assert not told(crowded), "others took the core"
    longer = [
        row(step, 0.1 if step <= 40 else 0.2, input_tokens=400 if step <= 40 else 800)
        for step in range(1, 101)
    ]
    assert not told(longer), "longer sequences"
    assert not told(rows(100, lambda step: 1.0 if step < 3 else 0.1)), "a slow start"
    assert not told(rows(100, lambda step: 1.0 if step % 10 == 0 else 0.1)), "evaluations"
    assert not told(rows(100, late(0.27, 0.1, 50))), "faster"
    assert not told(rows(100, lambda _: 0.1, profiled=True))
    assert not told([{"step": s, "wall_s": 0.1 * s} for s in range(1, 60)]), "nobody counted"


def test_healthy_step_times_of_a_shared_machine_raise_nothing() -> None:
    """Noise of a fifth, correlated from step to step, and levels that shift by a fifth."""
    alarmed = 0
    for seed in range(200):
        phi, sd = (0.0, 0.5, 0.8, 0.9)[seed % 4], SDS[1:][seed // 4 % 4]
        detector = SlowingDetector()
        steps = own_seconds(seed, phi, sd, (60, 100, 300)[seed % 3], SHIFTS[1])
        alarmed += any(
            [*detector.observe(Observation(step=at, own_s=own))] for at, own in enumerate(steps, 1)
        )
    assert alarmed <= 2


def test_a_launch_tells_how_its_last_third_went_against_its_first() -> None:
    assert slowing(rows(60, lambda step: 0.1 if step <= 30 else 0.25)) == pytest.approx(2.5)
    assert slowing(rows(60, lambda _: 0.1, delay_s=0.2)) == pytest.approx(1.0)
    assert slowing(rows(20, lambda _: 0.1)) is None, "too short"
    grown = [row(step, 0.1 * (1 + step / 60), input_tokens=300 + 10 * step) for step in range(60)]
    assert (slowing(grown) or 9.0) < 1.0, "longer sequences explain more"
    launch = records([0.1])[0].launches[-1]
    timed = launch_timing(launch, rows(70, lambda step: 9.0 if step < 10 else 0.1), warmup=10)
    assert timed.slowing == pytest.approx(1.0), "the warm-up left out"
