"""Faults of online RL: real incidents."""

from __future__ import annotations

import pytest

from tests.faults.laboratory import Fault, Laboratory, assert_caught

pytestmark = [pytest.mark.train, pytest.mark.slow]

# huggingface/trl#3992: advantages are no longer divided by the deviation of their group.
UNSCALED = Fault(
    "adv_nostd",
    "grpo",
    plant="""trainer.scale_rewards = "none" """,
    cause="objective",
    stage="first_loss",
    telling=("first_gradient", "advantages_scaled"),
)

# The class of OpenRLHF/OpenRLHF#1219: the parser of answers is broken, every reward is equal.
CONSTANT_REWARD = Fault(
    "rew_const",
    "grpo",
    plant="""
def reward(completions, **columns):
    return [0.0 for _ in completions]
trainer.reward_funcs[0] = reward
""",
    cause="rollout",
    stage="first_loss",
    telling=("first_gradient", "reward_varies"),
)

# huggingface/trl#3683: every token of a completion is generated from its whole beginning.
NO_CACHE = Fault(
    "nocache",
    "grpo",
    plant="trainer.generation_config.use_cache = False",
    cause="rollout",
    stage="work",
    signals=("tokens_fed",),
    telling=("tokens_fed", "flops"),
)

# The class of huggingface/trl#4873: log-probabilities of another temperature than the sampling.
TEMPERATURE = Fault(
    "temp_mis",
    "grpo",
    before="""
import trl.trainer.grpo_trainer as grpo
original = getattr(grpo, "add_fused_lm_head", None)
def add_head(model, temperature=1.0, **settings):
    return original(model, temperature=0.7, **settings)
if original is not None:
    grpo.add_fused_lm_head = add_head
""",
    # Versions of trl before the fused head divide the logits by this.
    plant="trainer.temperature = 0.7",
    cause="rollout",
    stage="first_gradient",
    telling=("first_gradient", "trajectory"),
)

FAULTS = [UNSCALED, CONSTANT_REWARD, NO_CACHE, TEMPERATURE]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.id)
def test_a_fault_of_online_rl_is_caught_at_its_stage(fault: Fault, laboratory: Laboratory) -> None:
    assert_caught(fault, laboratory.compare(fault))


@pytest.mark.parametrize("fault", [UNSCALED], ids=lambda fault: fault.id)
def test_unscaled_advantages_shrink_the_first_gradient(
    fault: Fault, laboratory: Laboratory
) -> None:
    compared = laboratory.compare(fault)
    before, after = (
        side.exact["first_gradient"]["total"] for side in (compared.clean, compared.changed)
    )
    assert after < 0.5 * before
    assert compared.found.check("batches").status == "pass"


@pytest.mark.parametrize("fault", [CONSTANT_REWARD], ids=lambda fault: fault.id)
def test_a_constant_reward_updates_nothing(fault: Fault, laboratory: Laboratory) -> None:
    exact = laboratory.compare(fault).changed.exact
    assert exact["first_gradient"]["total"] == 0
    assert exact["first_update"]["tensors_changed"] == 0


@pytest.mark.parametrize("fault", [NO_CACHE], ids=lambda fault: fault.id)
def test_generation_without_a_cache_feeds_many_times_the_tokens(
    fault: Fault, laboratory: Laboratory
) -> None:
    compared = laboratory.compare(fault)
    check = compared.found.check("tokens_fed")
    assert check.delta_pct is not None
    assert check.delta_pct > 100
    for name in ("batches", "first_loss", "first_gradient", "trajectory"):
        assert compared.found.check(name).status == "pass"
