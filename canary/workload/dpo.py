"""Direct preference optimization with trl's DPOTrainer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from canary.workload import adapt, older_rows
from canary.workload.arguments import training_arguments
from canary.workload.data import load_rows, require_enough
from canary.workload.model import load_model, load_tokenizer, reference_of
from canary.workload.peft import lora_config
from canary.workload.plugins import callbacks, data_collator
from canary.workload.spec import WorkloadSpec

if TYPE_CHECKING:
    from trl import DPOTrainer


def build(spec: WorkloadSpec) -> DPOTrainer:
    """A DPOTrainer whose reference is the policy as it starts, not yet started."""
    tokenizer = load_tokenizer(spec)
    rows = older_rows.as_installed(spec, load_rows(spec, tokenizer), tokenizer)
    config_class, trainer_class = adapt.offered("DPO")
    arguments = training_arguments(
        spec,
        config_class,
        max_length=spec.config.max_length,
        beta=spec.config.beta,
        trust_remote_code=spec.config.trust_remote_code,
        **({} if "loss_type" in spec.config.trainer_args else {"loss_type": ["sigmoid"]}),
    )
    model = load_model(spec, tokenizer)
    trainer: DPOTrainer = adapt.build(
        trainer_class,
        model=model,
        ref_model=reference_of(spec, model),
        args=arguments,
        data_collator=data_collator(spec, tokenizer),
        train_dataset=rows,
        processing_class=tokenizer,
        callbacks=callbacks(spec),
        peft_config=lora_config(spec),
    )
    # trl drops pairs whose prompt alone fills max_length
    kept: Any = trainer.train_dataset
    require_enough(spec, len(kept))
    return trainer
