"""REINFORCE, leave-one-out, with trl's RLOOTrainer and a reward that can be checked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from canary.workload import adapt
from canary.workload.arguments import training_arguments
from canary.workload.data import load_rows
from canary.workload.model import load_tokenizer
from canary.workload.online import generation_settings, load_policy
from canary.workload.peft import lora_config
from canary.workload.plugins import callbacks
from canary.workload.rewards import rewards_for
from canary.workload.spec import WorkloadSpec

if TYPE_CHECKING:
    from trl import RLOOTrainer


def build(spec: WorkloadSpec) -> RLOOTrainer:
    """An RLOOTrainer, not yet started."""
    tokenizer = load_tokenizer(spec)
    rows = load_rows(spec, tokenizer)
    rewards = rewards_for(spec, rows)
    config_class, trainer_class = adapt.offered("RLOO", takes="reward_funcs")
    arguments = training_arguments(spec, config_class, **generation_settings(spec))
    trainer: RLOOTrainer = adapt.build(
        trainer_class,
        model=load_policy(spec, tokenizer),
        reward_funcs=rewards,
        args=arguments,
        train_dataset=rows,
        processing_class=tokenizer,
        callbacks=callbacks(spec),
        peft_config=lora_config(spec),
    )
    return trainer
