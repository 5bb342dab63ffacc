"""ORPO and CPO, preferences without a reference, and the pairs that their truncation empties."""

from __future__ import annotations

from typing import Any

from canary.workload import adapt, older_rows
from canary.workload.arguments import training_arguments
from canary.workload.data import load_rows, require_enough
from canary.workload.model import load_model, load_tokenizer
from canary.workload.peft import lora_config
from canary.workload.plugins import callbacks, data_collator
from canary.workload.spec import WorkloadSpec


def build_reference_free(spec: WorkloadSpec, name: str) -> Any:
    """The trainer of that name (`ORPO`, `CPO`) of `trl.experimental`, not yet started.

    Raises ConfigError where this trl offers none.
    """
    config_class, trainer_class = adapt.offered(name)
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


def require_completions(spec: WorkloadSpec, trainer: Any) -> None:
    """Takes out the pairs that truncation left without a completion: their loss is not a number.

    Raises InputError where too few rows are left.
    """
    rows = trainer.train_dataset
    names = ("chosen_labels", "rejected_labels")
    usable = [
        number
        for number, row in enumerate(rows)
        if all(any(label >= 0 for label in row[name]) for name in names)
    ]
    require_enough(spec, len(usable))
    if len(usable) < len(rows):
        trainer.train_dataset = rows.select(usable)
