"""Build trl's trainers: SFT, DPO, reward models, KTO, ORPO and CPO, which train on the rows of the
data; GRPO and RLOO, which score groups of completions."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

from canary.errors import ConfigError
from canary.inputs.preconditions import require_enough
from canary.protocol.spec import WorkloadSpec
from canary.training import adapt
from canary.training.data.dataset import load_rows
from canary.training.models.model import (
    load_model,
    load_tokenizer,
    lora_config,
    reference_of,
    save_initial,
)
from canary.training.plugins import callbacks, data_collator
from canary.training.trainers import speed
from canary.training.trainers.arguments import training_arguments
from canary.training.trainers.rewards import rewards_for

if TYPE_CHECKING:
    from trl import DPOTrainer, GRPOTrainer, SFTTrainer


def build(spec: WorkloadSpec) -> SFTTrainer | DPOTrainer | GRPOTrainer | Any:
    """Return trl's trainer, not yet started. Raises ConfigError if this trl has no such trainer.

    A reward model is a sequence classifier with one label: one score per sequence. The embedded
    checkpoint gets a new head, drawn from the seed. A model that already is such a classifier keeps
    its head.
    """
    config, row = spec.config, spec.config.trainer
    config_class, trainer_class = adapt.offered(row.title, row.takes)
    tokenizer = load_tokenizer(spec)
    rows = load_rows(spec, tokenizer)
    wanted: dict[str, Any]
    if row.in_groups:
        wanted = {"reward_funcs": rewards_for(spec, rows)}
        arguments = training_arguments(spec, config_class, **generation_settings(spec))
        model = load_model(spec, tokenizer)
        if config.beta and not config.use_peft:
            save_initial(spec, model)  # trl loads the reference from it
    else:
        arguments = training_arguments(
            spec,
            config_class,
            max_length=config.max_length,
            trust_remote_code=config.trust_remote_code,
            **row.arguments,
            **({"beta": config.beta} if "beta" in row.uses else {}),
        )
        if row.classifies:
            rows = adapt.reward_rows(rows, config_class, spec.notes)
        model = load_model(spec, tokenizer)
        wanted = {"ref_model": reference_of(spec, model)} if row.reference else {}
        wanted["data_collator"] = data_collator(spec, tokenizer)
    trainer = adapt.build(
        trainer_class,
        model=model,
        args=arguments,
        train_dataset=rows,
        processing_class=tokenizer,
        callbacks=callbacks(spec),
        peft_config=lora_config(spec),
        **wanted,
    )
    if row.classifies and (config.load_in_4bit or config.load_in_8bit):
        # Keep a quantized model's new head in float32, like its input; trl casts it to bfloat16.
        for name, value in trainer.model.named_parameters():
            if value.requires_grad and "modules_to_save" in name:
                value.data = value.data.float()
    if row.keeps_empty:
        require_completions(spec, trainer)
    elif not row.in_groups:
        # trl drops rows whose prompt alone fills `max_length`, and pairs with a longer sequence.
        require_enough(spec, len(trainer.train_dataset))
    return trainer


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


def generation_settings(spec: WorkloadSpec) -> dict[str, Any]:
    """Return the generation arguments of GRPO and RLOO. Rollouts use the model's `generate`, unless
    trainer_args ask for vLLM; its settings are trl's.

    Raises ConfigError if vLLM is asked for but not installed.
    """
    config = spec.config
    if config.trainer_args.get("use_vllm") and importlib.util.find_spec("vllm") is None:
        raise ConfigError(
            "trainer_args.use_vllm needs vllm, which is not installed",
            'pip install "trl[vllm]", or remove trainer_args.use_vllm',
            key="trainer_args.use_vllm",
        )
    switched = speed.generation(config)
    return {
        **({"generation_kwargs": switched} if switched else {}),
        "beta": config.beta,
        "num_generations": config.num_generations,
        "max_completion_length": config.max_new_tokens,
        "temperature": config.temperature,
        "use_vllm": False,
        "remove_unused_columns": False,
        "trust_remote_code": config.trust_remote_code,
    }
