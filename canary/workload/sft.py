"""Supervised fine-tuning with trl's SFTTrainer: the loss is on the completion."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from canary.workload import adapt, older_rows
from canary.workload.arguments import training_arguments
from canary.workload.data import load_rows, require_enough
from canary.workload.model import load_model, load_tokenizer
from canary.workload.peft import lora_config
from canary.workload.plugins import callbacks, data_collator
from canary.workload.spec import WorkloadSpec

if TYPE_CHECKING:
    from trl import SFTTrainer


def build(spec: WorkloadSpec) -> SFTTrainer:
    """An SFTTrainer over the config's model and data, not yet started."""
    tokenizer = load_tokenizer(spec)
    rows = older_rows.as_installed(spec, load_rows(spec, tokenizer), tokenizer)
    config_class, trainer_class = adapt.offered("SFT")
    arguments = training_arguments(
        spec,
        config_class,
        max_length=spec.config.max_length,
        packing=False,
        loss_type="nll",
        dataset_text_field="text",
        trust_remote_code=spec.config.trust_remote_code,
    )
    trainer: SFTTrainer = adapt.build(
        trainer_class,
        model=load_model(spec, tokenizer),
        args=arguments,
        data_collator=data_collator(spec, tokenizer) or older_rows.collator(spec, tokenizer),
        train_dataset=rows,
        processing_class=tokenizer,
        callbacks=callbacks(spec),
        peft_config=lora_config(spec),
    )
    # trl drops rows whose prompt alone fills max_length
    kept: Any = trainer.train_dataset
    require_enough(spec, len(kept))
    return trainer
