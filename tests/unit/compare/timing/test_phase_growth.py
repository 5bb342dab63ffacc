"""Which phase of a step grew, on machines that are not equally fast."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import pytest

from canary.compare.timing.phases import StepGrowth, phase_growth
from canary.record.phases import PHASES
from canary.record.types import Launch, RunRecord
from tests.unit.comparing import altered, example, on_gpu

STEP = {"data": 0.003, "forward": 0.034, "backward": 0.050, "optimizer": 0.006, "other": 0.007}
"""Seconds of a step of 100 ms."""


def run(
    added: Mapping[str, float] | None = None,
    machine: float = 1.0,
    scatter: float = 0.0,
    *,
    seed: int = 0,
    cpu: Mapping[str, float] | None = None,
    of: Mapping[str, float] = STEP,
) -> RunRecord:
    """A run of one launch whose phases are those of `STEP` and `added` on a machine so many times
    slower; `cpu`: CPU seconds added, where CPU seconds are measured."""
    chance = random.Random(seed)
    steady = {
        name: machine
        * (of.get(name, 0.0) + (added or {}).get(name, 0.0))
        * chance.gauss(1, scatter)
        for name in PHASES
    }
    spent = {name: of.get(name, 0.0) + cpu.get(name, 0.0) for name in PHASES} if cpu else {}
    launch = Launch(
        index=1,
        status="completed",
        steps=100,
        phases=steady,
        phases_steady=steady,
        phases_cpu=spent,
    )
    return example().model_copy(update={"launches": [launch], "phases": steady})


def grown(current: Any, baseline: Any) -> list[str]:
    return [phase.phase for phase in held(current, baseline).grown]


def held(current: Any, baseline: Any) -> StepGrowth:
    here, there = ([side] if isinstance(side, RunRecord) else side for side in (current, baseline))
    found = phase_growth(here, there)
    assert found is not None
    return found


def test_a_machine_slower_as_a_whole_grew_no_phase() -> None:
    found = held(run(machine=1.4), run())
    assert found.grown == ()
    assert found.current_s == pytest.approx(0.140)


@pytest.mark.parametrize("seed", range(4))
def test_slow_data_shows_on_a_machine_that_is_slower_and_noisier(seed: int) -> None:
    found = held(run({"data": 0.050}, 1.3, 0.05, seed=seed), run(scatter=0.05, seed=100 + seed))
    assert [phase.phase for phase in found.grown] == ["data"]
    assert found.grown[0].share > 0.8
    assert found.grown[0].growth_s == pytest.approx(1.3 * 0.050, rel=0.3)


@pytest.mark.parametrize("seed", range(4))
def test_scatter_of_the_phases_alone_grows_none(seed: int) -> None:
    assert (
        grown(run(machine=1.3, scatter=0.08, seed=seed), run(scatter=0.08, seed=100 + seed)) == []
    )


def test_a_short_phase_that_doubles_explains_no_regression() -> None:
    short = {**STEP, "logging": 0.001}
    assert grown(run({"logging": 0.001}, of=short), run(of=short)) == []


def test_a_phase_that_the_baseline_did_not_have_is_named() -> None:
    found = held(run({"checkpoint": 0.020}), run())
    assert [phase.phase for phase in found.grown] == ["checkpoint"]
    assert found.grown[0].baseline_s == 0.0
    assert "generation" not in [phase.phase for phase in found.phases]


def test_a_long_phase_is_not_its_own_measure() -> None:
    most = {"data": 0.004, "forward": 0.020, "backward": 0.160, "optimizer": 0.008, "other": 0.008}
    assert grown(run({"backward": 0.160}, of=most), run(of=most)) == ["backward"]


def test_launches_that_agree_show_what_a_prior_hides() -> None:
    """7 ms of 34 are within the scatter of two runs, and clear where four agree on each side."""
    slower = [run({"forward": 0.007}, scatter=0.01, seed=seed) for seed in range(4)]
    before = [run(scatter=0.01, seed=100 + seed) for seed in range(4)]
    assert grown(slower[0], before[0]) == []
    assert grown(slower, before) == ["forward"]


def test_cpu_seconds_show_what_the_clock_hides() -> None:
    none = {"data": 0.0}
    found = held(run(cpu={"forward": 0.012}), run(cpu=none))
    assert [(phase.phase, phase.stands_out_in_cpu) for phase in found.grown] == [("forward", True)]
    assert found.grown[0].baseline_cpu_s == pytest.approx(STEP["forward"])
    assert found.grown[0].current_cpu_s == pytest.approx(STEP["forward"] + 0.012)
    slower_clock = run(cpu={name: 0.4 * seconds for name, seconds in STEP.items()})
    assert grown(slower_clock, run(cpu=none)) == []


def test_cpu_seconds_of_a_host_that_waits_for_its_gpu_tell_nothing() -> None:
    found = held(on_gpu(run(cpu={"forward": 0.012})), on_gpu(run(cpu={"data": 0.0})))
    assert found.grown == ()
    assert all(phase.current_cpu_s is not None for phase in found.phases)


def test_longer_completions_are_not_a_slower_generation() -> None:
    generating = {**STEP, "generation": 0.2}
    before = altered(run(of=generating), "tokens", "completion_tokens", to=1000)
    longer = altered(
        run({"generation": 0.2}, of=generating), "tokens", "completion_tokens", to=2000
    )
    assert grown(longer, before) == []
    slower = altered(longer, "tokens", "completion_tokens", to=1000)
    assert grown(slower, before) == ["generation"]
