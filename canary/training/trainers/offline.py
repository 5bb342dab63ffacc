"""Build SFT, DPO, reward models, KTO, ORPO and CPO, which train on the rows of the data."""

from __future__ import annotations

from typing import Any

from canary.inputs.row_counts import require_enough
from canary.protocol.spec import WorkloadSpec
from canary.training import adapt
from canary.training.data.dataset import load_rows
from canary.training.models.model import load_model, load_tokenizer, lora_config, reference_of
from canary.training.plugins import callbacks, data_collator
from canary.training.trainers.arguments import training_arguments


def build(spec: WorkloadSpec) -> Any:
    """Return trl's trainer, not yet started. Raises ConfigError if this trl has no such trainer.

    A reward model is a sequence classifier with one label: one score per sequence. The embedded
    checkpoint gets a new head, drawn from the seed. A model that already is such a classifier keeps
    its head.
    """
    config, row = spec.config, spec.config.trainer
    config_class, trainer_class = adapt.offered(row.title, row.takes)
    tokenizer = load_tokenizer(spec)
    rows = load_rows(spec, tokenizer)
    beta = {"beta": config.beta} if "beta" in row.uses else {}
    arguments = training_arguments(
        spec,
        config_class,
        max_length=config.max_length,
        trust_remote_code=config.trust_remote_code,
        **row.arguments,
        **beta,
    )
    if row.classifies:
        rows = adapt.reward_rows(rows, config_class, spec.notes)
    model = load_model(spec, tokenizer)
    trainer = adapt.build(
        trainer_class,
        model=model,
        **({"ref_model": reference_of(spec, model)} if row.reference else {}),
        args=arguments,
        data_collator=data_collator(spec, tokenizer),
        train_dataset=rows,
        processing_class=tokenizer,
        callbacks=callbacks(spec),
        peft_config=lora_config(spec),
    )
    if row.classifies and (config.load_in_4bit or config.load_in_8bit):
        _head_in_float32(trainer.model)
    (require_completions if row.keeps_empty else require_kept)(spec, trainer)
    return trainer


def _head_in_float32(model: Any) -> None:
    """Keep a quantized model's new head in float32, like its input; trl casts it to bfloat16."""
    for name, value in model.named_parameters():
        if value.requires_grad and "modules_to_save" in name:
            value.data = value.data.float()


def require_kept(spec: WorkloadSpec, trainer: Any) -> None:
    """Raise InputError if trl kept too few rows: it drops rows whose prompt alone fills
    `max_length`, and pairs with one sequence that is longer."""
    require_enough(spec, len(trainer.train_dataset))


def require_completions(spec: WorkloadSpec, trainer: Any) -> None:
    """Remove the pairs that truncation left without a completion. ORPO and CPO keep them, and their
    loss is NaN. Raises InputError if too few rows remain."""
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
