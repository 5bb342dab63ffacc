"""Odds-ratio preference optimization with the ORPOTrainer of `trl.experimental`: no reference."""

from __future__ import annotations

from typing import Any

from canary.workload import adapt, older_rows
from canary.workload.arguments import training_arguments
from canary.workload.completions import require_completions
from canary.workload.data import load_rows
from canary.workload.model import load_model, load_tokenizer
from canary.workload.peft import lora_config
from canary.workload.plugins import callbacks, data_collator
from canary.workload.spec import WorkloadSpec


def build(spec: WorkloadSpec) -> Any:
    """An ORPOTrainer, not yet started. ConfigError where this trl offers none."""
    config_class, trainer_class = adapt.offered("ORPO")
    tokenizer = load_tokenizer(spec)
    rows = older_rows.as_installed(spec, load_rows(spec, tokenizer), tokenizer)
    arguments = training_arguments(
        spec,
        config_class,
        max_length=spec.config.max_length,
        beta=spec.config.beta,
        remove_unused_columns=False,
        trust_remote_code=spec.config.trust_remote_code,
    )
    trainer = adapt.build(
        trainer_class,
        model=load_model(spec, tokenizer),
        args=arguments,
        data_collator=data_collator(spec, tokenizer),
        train_dataset=rows,
        processing_class=tokenizer,
        callbacks=callbacks(spec),
        peft_config=lora_config(spec),
    )
    require_completions(spec, trainer)
    return trainer
