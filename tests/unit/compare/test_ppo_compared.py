"""PPO compared: what is made of a rollout has a stage of its own, in the order of its making."""

from __future__ import annotations

import math

import pytest

from canary.compare.exact.rollout_stage import SIGNALS
from tests.unit.comparing import altered
from tests.unit.ppo_records import compared, later, moved, other_completions, ppo


def test_equal_rollouts_pass_without_timed_steps() -> None:
    found = compared(ppo(1))
    assert found.check("rollout").status == "pass"
    assert found.differences == ()
    assert found.verdict == "pass"
    assert "exact: true" in found.check("step_time_median").message


@pytest.mark.parametrize("signal", SIGNALS)
def test_a_signal_of_step_1_is_a_first_difference_of_its_own(signal: str) -> None:
    changed = ppo(1)
    if signal == "values":  # they begin at 0
        changed = altered(changed, "exact", "rollout", "signals", signal, "rms", 0, to=0.01)
    found = compared(moved(changed, signal, 1))
    assert found.verdict == ("regression" if signal == "rewards" else "changed")
    assert found.first_difference is not None
    assert (found.first_difference.stage, found.first_difference.signal) == ("rollout", signal)
    assert found.check("rollout").status == "changed"
    assert found.check("rollout").delta is not None


def test_after_step_1_a_signal_belongs_to_the_trajectory_and_names_its_step() -> None:
    found = compared(later(moved(moved(ppo(1), "rewards", 3), "advantages", 3), 3))
    assert found.check("rollout").status == "pass"
    first = found.first_difference
    assert first is not None
    assert (first.stage, first.signal, first.step) == ("trajectory", "rewards", 3)
    assert "at step 3" in first.sentence()
    assert "rewards: mean" in found.check("trajectory").message


def test_values_that_change_places_differ() -> None:
    found = compared(moved(ppo(1), "scores", 1, only="placed"))
    assert found.first_difference is not None
    assert found.first_difference.signal == "scores"
    assert "equal mean" in found.check("rollout").message


def test_nothing_is_said_of_what_is_made_of_other_completions() -> None:
    found = compared(moved(other_completions(ppo(1), 1), "rewards", 1))
    assert found.check("rollout").status == "skip"
    assert "completions differ" in found.check("rollout").message
    assert found.check("batches").status == "warn"
    late = compared(moved(other_completions(ppo(1), 3), "rewards", 4))
    assert "rewards" not in [d.signal for d in late.differences]


def test_completions_that_are_padded_otherwise_are_the_same() -> None:
    changed = altered(ppo(1), "exact", "batches", 0, 0, "sha256", to="f" * 64)
    assert compared(changed).check("rollout").status == "pass"
    assert compared(moved(changed, "rewards", 1)).check("rollout").status == "changed"


@pytest.mark.parametrize(("factor", "status"), [(1 + 1e-6, "pass"), (1 + 1e-4, "changed")])
def test_rounding_is_no_difference(factor: float, status: str) -> None:
    assert compared(moved(ppo(1), "advantages", 1, factor)).check("rollout").status == status


def test_a_signal_that_is_no_number_differs() -> None:
    changed = altered(ppo(1), "exact", "rollout", "signals", "returns", "rms", 0, to="nan")
    found = compared(changed)
    assert found.check("rollout").status == "changed"
    assert found.first_difference is not None
    assert math.isinf(found.first_difference.relative or 0.0)


def test_a_stage_that_one_side_lacks_is_undecided_and_one_that_both_lack_is_not_asked() -> None:
    bare = ppo(1)
    del bare.exact["rollout"]
    assert compared(ppo(2), bare).check("rollout").status == "inconclusive"
    assert compared(bare).check("rollout").status == "inconclusive"
    other = bare.model_copy(update={"run_id": "other"}, deep=True)
    assert "rollout" not in [check.name for check in compared(bare, other).checks]


def test_a_look_alone_beside_timed_runs_is_never_a_pass() -> None:
    timed = altered(ppo(), "config", "exact", to=False)
    timed = altered(timed, "perf", "step_time", "count", to=20)
    for name in ("mean", "median"):
        timed = altered(timed, "perf", "step_time", name, to=0.1)
    found = compared(ppo(1), timed)
    assert found.verdict == "inconclusive"
    unasked = altered(ppo(1), "config", "exact", to=False)
    assert compared(unasked, timed).verdict == "error"
