"""Faults of preference training: real incidents."""

from __future__ import annotations

import math

import pytest

from tests.faults.laboratory import Fault, Laboratory, assert_caught

pytestmark = [pytest.mark.train, pytest.mark.slow]

# huggingface/trl#1534: the reference is the policy itself and moves with it.
REFERENCE_IS_POLICY = Fault(
    "ref_is_policy",
    "dpo",
    plant="trainer.ref_model = trainer.model",
    cause="adapter",
    stage="trajectory",
    signals=("loss",),
    telling=("trajectory", "frozen_unchanged"),
)

BETA_CONFIG = Fault(
    "beta_x10_config",
    "dpo",
    config={"beta": 0.01},
    cause="objective",
    stage="config",
    signals=("beta",),
    telling=("first_gradient", "trajectory"),
)

# The same from code: a default that is no longer handed on.
BETA = Fault(
    "beta_x10",
    "dpo",
    plant="trainer.beta = 0.01",
    cause="objective",
    stage="first_gradient",
    signals=("total",),
    telling=("first_gradient", "trajectory"),
)

# The columns of a dataset are mixed up: chosen is taken for rejected.
SWAPPED = Fault(
    "swapped",
    "dpo",
    plant="""
original = trainer.data_collator
def collate(rows):
    return original([
        row | {"chosen_ids": row["rejected_ids"], "rejected_ids": row["chosen_ids"]} for row in rows
    ])
trainer.data_collator = collate
""",
    cause="data",
    stage="batches",
    telling=("batches", "trajectory"),
)

FAULTS = [REFERENCE_IS_POLICY, BETA, BETA_CONFIG, SWAPPED]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.id)
def test_a_fault_of_preference_training_is_caught_at_its_stage(
    fault: Fault, laboratory: Laboratory
) -> None:
    assert_caught(fault, laboratory.compare(fault))


@pytest.mark.parametrize("fault", [REFERENCE_IS_POLICY], ids=lambda fault: fault.id)
def test_a_policy_that_is_its_own_reference_stays_at_ln_2(
    fault: Fault, laboratory: Laboratory
) -> None:
    compared = laboratory.compare(fault)
    for name in ("model", "first_loss", "dpo_first_loss"):
        assert compared.found.check(name).status == "pass"
    losses = compared.changed.exact["trajectory"]["losses"]
    assert losses == pytest.approx([math.log(2)] * len(losses), abs=1e-5)


@pytest.mark.parametrize("fault", [BETA, BETA_CONFIG], ids=lambda fault: fault.id)
def test_a_tenth_of_beta_is_a_tenth_of_the_first_gradient(
    fault: Fault, laboratory: Laboratory
) -> None:
    compared = laboratory.compare(fault)
    assert compared.found.check("first_loss").status == "pass"
    before, after = (side.exact["first_gradient"] for side in (compared.clean, compared.changed))
    assert after["total"] / before["total"] == pytest.approx(0.1, rel=1e-4)


@pytest.mark.parametrize("fault", [SWAPPED], ids=lambda fault: fault.id)
def test_swapped_pairs_turn_the_margins_and_leave_the_first_loss(
    fault: Fault, laboratory: Laboratory
) -> None:
    compared = laboratory.compare(fault)
    assert compared.found.check("first_loss").status == "pass"
    before, after = (
        side.exact["first_gradient"]["total"] for side in (compared.clean, compared.changed)
    )
    assert after == pytest.approx(before, rel=1e-4)
    # Both learn what they are told; what they are told is the opposite.
    margins = compared.changed.exact["trajectory"]["rl"]["rewards/margins"]
    assert (margins[-1] or 0) > 0
