"""Faults of the work done in SFT, of memory, of files and of time: what is learned stays equal."""

from __future__ import annotations

import pytest

from canary.compare.exact.stages import LEARNED_STAGES
from tests.faults.laboratory import Fault, Laboratory, assert_caught

pytestmark = [pytest.mark.train, pytest.mark.slow]

# huggingface/trl#999 the other way round: a new default recomputes activations.
CHECKPOINTING = Fault(
    "gc_on",
    plant="trainer.model.gradient_checkpointing_enable()",
    cause="kernel",
    stage="work",
    signals=("operators",),
    telling=("operators",),
)

# huggingface/transformers#6999: the loss is read by Python in each micro-batch.
ITEM_EACH_STEP = Fault(
    "sync_item",
    plant="""
original = trainer.compute_loss
trainer.seen_loss = 0.0
def compute_loss(*args, **kwargs):
    loss = original(*args, **kwargs)
    trainer.seen_loss += loss.item()
    return loss
trainer.compute_loss = compute_loss
""",
    cause="kernel",
    stage="work",
    signals=("host_reads",),
    telling=("host_reads",),
)

# The same incident: losses are kept for a mean, and their graphs with them.
KEPT_LOSSES = Fault(
    "live_leak",
    plant="""
original = trainer.compute_loss
trainer.seen_losses = []
def compute_loss(*args, **kwargs):
    loss = original(*args, **kwargs)
    trainer.seen_losses.append(loss)
    return loss
trainer.compute_loss = compute_loss
""",
    cause="memory",
    stage="memory",
    signals=("live_tensors",),
    telling=("live_tensors",),
)

# axolotl-ai-cloud/axolotl#3219: a collator that takes many times as long as the step.
SLOW_COLLATOR = Fault(
    "slow_collate",
    plant="""
import time
original = trainer.data_collator
def collate(rows):
    time.sleep(0.5)
    return original(rows)
trainer.data_collator = collate
""",
    cause="dataloader",
    stage=None,
    telling=("step_time_median", "step_time_mean", "tokens_per_sec"),
)

# huggingface/trl#6206: a function that cannot be hashed, so that no pass is found in the cache.
RETOKENIZED = Fault(
    "retokenize",
    before="""
from datasets import Dataset
original, shown = Dataset.map, iter(range(10**9))
def map_rows(self, function=None, *args, **kwargs):
    if function is None:
        return original(self, function, *args, **kwargs)
    def followed(*args, **kwargs):
        next(shown_rows)
        return function(*args, **kwargs)
    shown_rows = (number for number in shown)
    return original(self, followed, *args, **kwargs)
Dataset.map = map_rows
""",
    cause="tokenization",
    stage="calls",
    signals=("dataset_maps",),
    telling=("dataset_maps",),
)

# verl-project/verl#2860: a checkpoint after every step.
SAVED_EACH_STEP = Fault(
    "slow_save",
    plant="""
from transformers.trainer_utils import SaveStrategy
trainer.args.save_strategy, trainer.args.save_steps = SaveStrategy.STEPS, 1
""",
    cause="io",
    stage="calls",
    signals=("files_written", "bytes_written"),
    telling=("files_written", "bytes_written"),
)

FAULTS = [
    CHECKPOINTING,
    ITEM_EACH_STEP,
    KEPT_LOSSES,
    SLOW_COLLATOR,
    RETOKENIZED,
    SAVED_EACH_STEP,
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.id)
def test_a_fault_of_the_work_is_caught_and_nothing_learned_is_blamed(
    fault: Fault, laboratory: Laboratory
) -> None:
    compared = laboratory.compare(fault)
    assert_caught(fault, compared)
    for name in set(LEARNED_STAGES) - {"rollout"}:
        assert compared.found.check(name).status == "pass", compared.found.check(name).message


@pytest.mark.parametrize("fault", [ITEM_EACH_STEP], ids=lambda fault: fault.id)
def test_one_more_read_a_micro_batch_is_counted_as_one(
    fault: Fault, laboratory: Laboratory
) -> None:
    check = laboratory.compare(fault).found.check("host_reads")
    assert check.delta == 2


@pytest.mark.parametrize("fault", [KEPT_LOSSES], ids=lambda fault: fault.id)
def test_kept_losses_are_two_tensors_more_a_step(fault: Fault, laboratory: Laboratory) -> None:
    check = laboratory.compare(fault).found.check("live_tensors")
    assert check.delta == pytest.approx(2, abs=0.05)


@pytest.mark.parametrize("fault", [SLOW_COLLATOR], ids=lambda fault: fault.id)
def test_a_slow_collator_is_the_data_phase_and_no_other(
    fault: Fault, laboratory: Laboratory
) -> None:
    compared = laboratory.compare(fault)
    grown = {
        phase: seconds - compared.clean.phases.get(phase, 0.0)
        for phase, seconds in compared.changed.phases.items()
    }
    assert compared.changed.phases["data"] >= 0.98
    assert grown.pop("data") > 0.5
    # A busy machine stretches every phase; none of the others comes near.
    assert max(grown.values()) < 0.5


@pytest.mark.parametrize("fault", [SAVED_EACH_STEP], ids=lambda fault: fault.id)
def test_saving_has_a_phase_of_its_own(fault: Fault, laboratory: Laboratory) -> None:
    compared = laboratory.compare(fault)
    assert compared.clean.phases.get("checkpoint", 0.0) == 0.0
    assert compared.changed.phases["checkpoint"] > 0.0
