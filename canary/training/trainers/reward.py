"""Reward modelling with trl's RewardTrainer: one score per sequence, chosen above rejected."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from canary.protocol.spec import WorkloadSpec
from canary.training import adapt
from canary.training.data.dataset import load_rows
from canary.training.models.model import load_model, load_tokenizer, lora_config
from canary.training.plugins import callbacks, data_collator
from canary.training.trainers.arguments import training_arguments
from canary.training.trainers.offline import require_kept

if TYPE_CHECKING:
    from trl import RewardTrainer


def build(spec: WorkloadSpec) -> RewardTrainer:
    """Return a RewardTrainer over a sequence classifier with one label, not yet started.

    The embedded checkpoint gets a new head, drawn from the seed. A model that already is such a
    classifier keeps its head.
    """
    tokenizer = load_tokenizer(spec)
    rows = load_rows(spec, tokenizer)
    config_class, trainer_class = adapt.offered("Reward")
    arguments = training_arguments(
        spec,
        config_class,
        max_length=spec.config.max_length,
        trust_remote_code=spec.config.trust_remote_code,
    )
    trainer: RewardTrainer = adapt.build(
        trainer_class,
        model=load_model(spec, tokenizer),
        args=arguments,
        data_collator=data_collator(spec, tokenizer),
        train_dataset=adapt.reward_rows(rows, config_class, spec.notes),
        processing_class=tokenizer,
        callbacks=callbacks(spec),
        peft_config=lora_config(spec),
    )
    if spec.config.load_in_4bit or spec.config.load_in_8bit:
        _head_in_float32(trainer.model)
    require_kept(spec, trainer)
    return trainer


def _head_in_float32(model: Any) -> None:
    """Keep a quantized model's new head in float32, like its input; trl casts it to bfloat16."""
    for name, value in model.named_parameters():
        if value.requires_grad and "modules_to_save" in name:
            value.data = value.data.float()
