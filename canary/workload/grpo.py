"""Group relative policy optimization with trl's GRPOTrainer and a reward that can be checked."""

from __future__ import annotations

from trl import GRPOConfig, GRPOTrainer

from canary.workload.arguments import training_arguments
from canary.workload.data import load_rows
from canary.workload.model import load_tokenizer
from canary.workload.online import generation_settings, load_policy
from canary.workload.peft import lora_config
from canary.workload.plugins import callbacks
from canary.workload.rewards import rewards_for
from canary.workload.spec import WorkloadSpec


def build(spec: WorkloadSpec) -> GRPOTrainer:
    """A GRPOTrainer, not yet started."""
    tokenizer = load_tokenizer(spec)
    rows = load_rows(spec, tokenizer)
    rewards = rewards_for(spec, rows)
    arguments = training_arguments(spec, GRPOConfig, **generation_settings(spec))
    return GRPOTrainer(
        model=load_policy(spec, tokenizer),
        reward_funcs=rewards,
        args=arguments,
        train_dataset=rows,
        processing_class=tokenizer,
        callbacks=callbacks(spec),
        peft_config=lora_config(spec),
    )
