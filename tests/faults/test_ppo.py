"""Faults of PPO: the first difference says what computes otherwise, down to the signal and step.

Those that are trained here are some of `tests/faults/ppo.py`; `python -m bench.faults --corpus ppo`
trains all.
"""

from __future__ import annotations

import pytest

from canary.compare.exact.stages import LEARNED_STAGES
from tests.faults import ppo
from tests.faults.laboratory import Benign, Fault, Laboratory, assert_caught, told

pytestmark = [pytest.mark.train, pytest.mark.slow]

FAULTS = [
    ppo.UNCENTRED,
    ppo.KL_SIGN,
    ppo.PAST_EOS,
    ppo.VALUE_CLIP_OFF,
    ppo.WHITENED_EARLY,
    ppo.TEMPERATURE,
    ppo.RATIO_ALWAYS_ONE,
    ppo.RETOKENIZED,
    ppo.REFERENCE_IS_POLICY,
    ppo.GAMMA_CONFIG,
]


def named(change: Fault | Benign) -> str:
    return change.id


@pytest.mark.parametrize("fault", FAULTS, ids=named)
def test_a_fault_of_ppo_is_caught_at_its_stage(fault: Fault, laboratory: Laboratory) -> None:
    assert_caught(fault, laboratory.compare(fault))


@pytest.mark.parametrize("fault", [ppo.KL_SIGN], ids=named)
def test_the_sign_of_the_kl_shows_at_step_2_in_the_rewards_and_in_nothing_before(
    fault: Fault, laboratory: Laboratory
) -> None:
    compared = laboratory.compare(fault)
    first = compared.found.first_difference
    assert first is not None
    assert (first.signal, first.step) == ("rewards", 2)
    for name in ("batches", "rollout", "first_loss", "first_gradient", "first_update"):
        assert compared.found.check(name).status == "pass", name
    # Without any baseline too: the rewards no longer sum to the score less the KL.
    assert compared.found.check("rewards_add_up").status == "fail"


@pytest.mark.parametrize("fault", [ppo.UNCENTRED], ids=named)
def test_advantages_off_their_mean_leave_what_they_are_made_of(
    fault: Fault, laboratory: Laboratory
) -> None:
    compared = laboratory.compare(fault)
    assert compared.signals("rollout") == ["advantages"]
    top = compared.found.diagnosis.top_suspect
    assert top is not None
    assert any("objective.whiten" in item.message for item in top.evidence)


@pytest.mark.parametrize("fault", [ppo.VALUE_CLIP_OFF, ppo.RATIO_ALWAYS_ONE], ids=named)
def test_a_bound_that_is_gone_shows_after_the_first_update(
    fault: Fault, laboratory: Laboratory
) -> None:
    compared = laboratory.compare(fault)
    for name in ("rollout", "first_loss", "first_gradient", "first_update"):
        assert compared.found.check(name).status == "pass", name
    before, after = (
        side.exact["first_loss"]["updates"] for side in (compared.clean, compared.changed)
    )
    assert before[0] == after[0]
    assert before != after


@pytest.mark.parametrize("fault", [ppo.TEMPERATURE], ids=named)
def test_log_probabilities_of_another_temperature_keep_the_ratio_at_1(
    fault: Fault, laboratory: Laboratory
) -> None:
    found = laboratory.compare(fault).found
    assert found.check("starts_at_ratio_one").status == "pass"
    assert found.first_difference is not None
    assert found.first_difference.signal == "logprobs"


@pytest.mark.parametrize("benign", ppo.OTHER_WORK, ids=named)
def test_other_work_for_the_same_result_is_no_change_of_what_is_learned(
    benign: Benign, laboratory: Laboratory
) -> None:
    found = laboratory.compare(benign).found
    statuses = {name: found.check(name).status for name in LEARNED_STAGES}
    padded = statuses.pop("batches")
    assert set(statuses.values()) == {"pass"}, told(found)
    assert padded in ("pass", "warn"), told(found)
    assert {check.lane for check in found.failed_checks} <= {"exact"}, told(found)
