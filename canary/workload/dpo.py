"""Direct preference optimization with trl's DPOTrainer."""

from __future__ import annotations

import copy
from typing import Any

from transformers import PreTrainedModel
from trl import DPOConfig, DPOTrainer

from canary.workload.arguments import training_arguments
from canary.workload.data import load_rows, require_enough
from canary.workload.model import load_model, load_tokenizer
from canary.workload.peft import lora_config
from canary.workload.spec import WorkloadSpec


def build(spec: WorkloadSpec) -> DPOTrainer:
    """A DPOTrainer whose reference is the policy as it starts, not yet started."""
    tokenizer = load_tokenizer(spec)
    rows = load_rows(spec, tokenizer)
    arguments = training_arguments(
        spec,
        DPOConfig,
        max_length=spec.config.max_length,
        beta=spec.config.beta,
        trust_remote_code=spec.config.trust_remote_code,
        **({} if "loss_type" in spec.config.trainer_args else {"loss_type": ["sigmoid"]}),
    )
    model = load_model(spec, tokenizer)
    trainer = DPOTrainer(
        model=model,
        ref_model=_reference(spec, model),
        args=arguments,
        train_dataset=rows,
        processing_class=tokenizer,
        peft_config=lora_config(spec),
    )
    # trl drops pairs whose prompt alone fills max_length
    kept: Any = trainer.train_dataset
    require_enough(spec, len(kept))
    return trainer


def _reference(spec: WorkloadSpec, model: PreTrainedModel) -> PreTrainedModel | None:
    """A frozen copy of the policy; None where trl needs none.

    Left to itself trl loads the reference again by the model's name: that fails for a model built
    in memory, and ignores the revision and any resized embedding. With an adapter, trl switches
    it off instead; with precomputed log-probabilities, it uses the policy before the first step.
    """
    if spec.config.use_peft or spec.config.trainer_args.get("precompute_ref_log_probs"):
        return None
    reference: PreTrainedModel = copy.deepcopy(model)
    reference.requires_grad_(False)
    reference.train(False)
    return reference
