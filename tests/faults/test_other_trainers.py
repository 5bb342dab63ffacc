"""Faults of reward models, unpaired preferences and leave-one-out rollouts."""

from __future__ import annotations

import pytest

from tests.faults.laboratory import Fault, Laboratory, assert_caught

pytestmark = [pytest.mark.train, pytest.mark.slow]

# The reward model learns to prefer what people rejected.
SIDES = Fault(
    "reward_sides",
    "reward",
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

# A weight meant for unequal data is left on.
WEIGHT = Fault(
    "kto_weight",
    "kto",
    plant="trainer.desirable_weight = 2.0",
    cause="objective",
    stage="first_loss",
    telling=("first_loss", "kto_first_loss"),
)

# Good and bad are mixed up.
LABELS = Fault(
    "kto_labels",
    "kto",
    plant="""
original = trainer.data_collator
trainer.data_collator = lambda rows: original([row | {"label": not row["label"]} for row in rows])
""",
    cause="data",
    stage="batches",
    telling=("batches", "trajectory"),
)

# The reference is the policy itself and moves with it.
REFERENCE = Fault(
    "kto_reference",
    "kto",
    plant="trainer.ref_model = trainer.model",
    cause="adapter",
    stage="trajectory",
    signals=("loss",),
    telling=("trajectory", "frozen_unchanged"),
)

# A default that moved: advantages are scaled to one size.
ADVANTAGES = Fault(
    "rloo_normalized",
    "rloo",
    plant="trainer.normalize_advantages = True",
    cause="objective",
    stage="first_loss",
    telling=("first_loss", "first_gradient", "trajectory"),
)

FAULTS = [SIDES, WEIGHT, LABELS, REFERENCE, ADVANTAGES]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.id)
def test_a_fault_of_another_trainer_is_caught_at_its_stage(
    fault: Fault, laboratory: Laboratory
) -> None:
    assert_caught(fault, laboratory.compare(fault))
