"""Faults of objective, optimizer, adapter and numerics in SFT: real incidents."""

from __future__ import annotations

import math

import pytest

from canary.record.jsonio import number
from tests.faults.laboratory import Fault, Laboratory, assert_caught

pytestmark = [pytest.mark.train, pytest.mark.slow]

# huggingface/transformers#34191: accumulation averages the means of unequal micro-batches.
MEAN_OF_MEANS = Fault(
    "mean_of_means",
    plant="trainer.model_accepts_loss_kwargs = False",
    cause="objective",
    stage="first_loss",
    signals=("loss",),
    telling=("first_loss", "first_gradient"),
)

# huggingface/transformers#24088, huggingface/accelerate#2926: two scheduler steps for each update.
FAST_SCHEDULE = Fault(
    "half_sched",
    plant="""
original = trainer.create_scheduler
def create_scheduler(*args, **kwargs):
    scheduler = original(*args, **kwargs)
    step = scheduler.step
    def step_twice(*args, **kwargs):
        step(*args, **kwargs)
        step(*args, **kwargs)
    scheduler.step = step_twice
    return scheduler
trainer.create_scheduler = create_scheduler
""",
    cause="optimizer",
    stage="first_update",
    signals=("learning_rate",),
    telling=("first_update", "trajectory"),
)

LEARNING_RATE_CONFIG = Fault(
    "lr_2x_config",
    config={"learning_rate": 1e-3},
    cause="optimizer",
    stage="config",
    signals=("learning_rate",),
    telling=("first_update", "trajectory"),
)

# The same from code that merges its own defaults over the config: nothing explains it.
LEARNING_RATE = Fault(
    "lr_2x",
    plant="trainer.args.learning_rate *= 2",
    cause="optimizer",
    stage="first_update",
    signals=("learning_rate", "delta_norm"),
    telling=("first_update", "trajectory"),
)

# The class of huggingface/peft#2765: every second adapter stays frozen.
FROZEN_ADAPTERS = Fault(
    "lora_frozen_half",
    "sft_lora",
    plant="""
adapters = [m for m in trainer.model.modules() if hasattr(m, "lora_A") and len(m.lora_A)]
for module in adapters[::2]:
    module.lora_A.requires_grad_(False)
    module.lora_B.requires_grad_(False)
""",
    cause="adapter",
    stage="model",
    signals=("trainable_tensors", "trainable_parameters"),
    telling=("model", "first_gradient"),
)

# OpenRLHF/OpenRLHF#634: the optimizer's own weights are kept in bfloat16.
BF16_MASTER = Fault(
    "bf16_master",
    plant="""
import torch
trainer.model.to(torch.bfloat16)
""",
    cause="numerics",
    stage="model",
    signals=("dtypes",),
    telling=("model", "first_loss", "trainable_changed"),
)

# unslothai/unsloth#3006: one NaN, and a log filter that shows the last good loss instead.
NAN_ROW = Fault(
    "nan_row",
    plant="""
trainer.args.logging_nan_inf_filter = True
original, calls = trainer.compute_loss, [0]
def compute_loss(*args, **kwargs):
    loss = original(*args, **kwargs)
    calls[0] += 1
    return loss * float("nan") if calls[0] == 8 else loss
trainer.compute_loss = compute_loss
""",
    cause="numerics",
    stage="trajectory",
    signals=("loss", "grad_norm"),
    telling=("nan_steps", "raw_loss_finite", "loss_divergence", "trajectory"),
)

FAULTS = [
    MEAN_OF_MEANS,
    FAST_SCHEDULE,
    LEARNING_RATE,
    LEARNING_RATE_CONFIG,
    FROZEN_ADAPTERS,
    BF16_MASTER,
    NAN_ROW,
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.id)
def test_a_fault_of_the_learning_is_caught_at_its_stage(
    fault: Fault, laboratory: Laboratory
) -> None:
    assert_caught(fault, laboratory.compare(fault))


@pytest.mark.parametrize("fault", [LEARNING_RATE, LEARNING_RATE_CONFIG], ids=lambda fault: fault.id)
def test_a_doubled_learning_rate_leaves_loss_and_gradient_of_step_1_and_doubles_the_update(
    fault: Fault, laboratory: Laboratory
) -> None:
    compared = laboratory.compare(fault)
    for name in ("data", "batches", "model", "first_loss", "first_gradient"):
        assert compared.found.check(name).status == "pass"
    before, after = (side.exact["first_update"] for side in (compared.clean, compared.changed))
    assert after["delta_norm"] / before["delta_norm"] == pytest.approx(2, rel=1e-3)


@pytest.mark.parametrize("fault", [NAN_ROW], ids=lambda fault: fault.id)
def test_a_nan_is_seen_at_its_step_although_the_log_hides_it(
    fault: Fault, laboratory: Laboratory
) -> None:
    changed = laboratory.compare(fault).changed
    losses = [number(loss) for loss in changed.exact["trajectory"]["losses"]]
    assert [math.isnan(float(loss)) for loss in losses if loss is not None][:5] == [
        False,
        False,
        False,
        True,
        True,
    ]
    assert changed.stability.nan_at[0] == 4
