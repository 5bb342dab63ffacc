"""From a config to a PPO trainer: policy, value head, reference, scorer, data."""

from __future__ import annotations

import math
from typing import Any

from transformers import GenerationConfig, PreTrainedTokenizerBase, set_seed

from canary.errors import ConfigError, InputError
from canary.protocol.spec import WorkloadSpec
from canary.training import adapt
from canary.training.data.dataset import load_rows
from canary.training.models.lora import lora_config
from canary.training.models.model import load_model, load_tokenizer, reference_of
from canary.training.plugins import callbacks
from canary.training.trainers.arguments import training_arguments
from canary.training.trainers.ppo.adaptive_kl import MOST
from canary.training.trainers.ppo.arguments import ARGUMENTS_OF_PPO, PPOArguments
from canary.training.trainers.ppo.model import ActorCritic
from canary.training.trainers.ppo.modes import without_dropout
from canary.training.trainers.ppo.rollout import prompt_ids
from canary.training.trainers.ppo.scoring import build_scorer
from canary.training.trainers.ppo.switches import has_fixed_cache, switches_of
from canary.training.trainers.ppo.trainer import PPOTrainer

ELSEWHERE = (
    "neftune_noise_alpha",
    "label_smoothing_factor",
    "auto_find_batch_size",
    "torch_empty_cache_steps",
    "eval_on_start",
    "load_best_model_at_end",
)
"""Arguments of transformers that its own training loop reads, and PPO's does not."""


def build_ppo(spec: WorkloadSpec) -> PPOTrainer:
    """A PPOTrainer, not yet started."""
    config = spec.config
    assert config.ppo is not None
    tokenizer = load_tokenizer(spec)
    rows = load_rows(spec, tokenizer)
    settings = {name: getattr(config.ppo, name) for name in ARGUMENTS_OF_PPO}
    arguments = training_arguments(
        spec,
        PPOArguments,
        **settings,
        max_new_tokens=config.max_new_tokens,
        temperature=config.temperature,
        fixed_length=config.fixed_length,
        remove_unused_columns=False,
        dataloader_drop_last=True,
    )
    spec.notes.extend(
        f"trainer_args.{name} is not used: PPO's loop is its own"
        for name in ELSEWHERE
        if config.trainer_args.get(name)
    )
    _require_a_horizon(spec, arguments)
    _require_prompts(spec, rows, tokenizer)
    policy = load_model(spec, tokenizer)
    policy.generation_config = _nothing_cut_off(policy.generation_config)
    reference = reference_of(spec, policy)
    adapt.checkpoint_activations(policy, arguments)
    trainer = PPOTrainer(
        model=_actor_critic(spec, policy),
        reference=reference,
        scorer=build_scorer(spec, rows, tokenizer, arguments.device),
        args=arguments,
        switches=switches_of(config, _widest(spec, rows, tokenizer)),
        train_dataset=rows,
        processing_class=tokenizer,
        callbacks=callbacks(spec),
    )
    _require_whole_models(trainer)
    return trainer


def _require_whole_models(trainer: Any) -> None:
    """ConfigError where a rank would hold a part of the policy that it samples from."""
    if trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled:
        raise ConfigError(
            "PPO samples from a policy that is whole on every rank, and this one is shared out",
            "train with DDP (nproc), or on one device",
            key="training_type",
        )


def _require_a_horizon(spec: WorkloadSpec, arguments: PPOArguments) -> None:
    """ConfigError where one adaptation could take all of the KL's weight, or turn its sign."""
    completions = arguments.rollout_size * spec.ranks
    least = math.floor(MOST * completions) + 1
    if arguments.adap_kl_ctrl and arguments.horizon < least:
        raise ConfigError(
            f"ppo.horizon {arguments.horizon} is too short for rollouts of {completions} "
            "completions: the weight of the KL would turn negative",
            f"{least} at least; 10000 is usual",
            key="ppo.horizon",
        )


def _require_prompts(spec: WorkloadSpec, rows: Any, tokenizer: PreTrainedTokenizerBase) -> None:
    """InputError naming a row whose prompt has no token: nothing says what comes first then."""
    for number, prompt in enumerate(rows["prompt"], start=1):
        if prompt == "" and not prompt_ids({"prompt": prompt}, tokenizer):
            raise InputError(
                f"dataset '{spec.config.dataset_name}': 'prompt' of usable row {number} is empty",
                "leave the row out",
            )


def _nothing_cut_off(own: GenerationConfig) -> GenerationConfig:
    """A model's own settings may shift what is sampled (top_k, repetition_penalty ...), and
    `generate` takes each that is not said otherwise: then the log-probabilities that PPO learns by
    would not be those that it sampled by."""
    tokens = ("bos_token_id", "eos_token_id", "pad_token_id")
    return GenerationConfig(**{name: getattr(own, name) for name in tokens})


def _actor_critic(spec: WorkloadSpec, policy: Any) -> ActorCritic:
    """The policy with its adapter, where it has one, and a value head. Dropout is off: what is
    sampled and what is trained are one policy."""
    adapter = lora_config(spec)
    if adapter is not None:
        from peft import get_peft_model

        set_seed(spec.config.seed)
        policy = get_peft_model(policy, adapter)
    without_dropout(policy)
    if spec.config.lora_dropout:
        spec.notes.append("lora_dropout is not used: PPO trains the policy that it samples from")
    set_seed(spec.config.seed)
    return ActorCritic(policy)


def _widest(spec: WorkloadSpec, rows: Any, tokenizer: PreTrainedTokenizerBase) -> int | None:
    """Tokens of the longest prompt there is; None where nothing has its size."""
    speed = spec.config.speed
    if speed.lengths != "fixed" and not has_fixed_cache(spec.config):
        return None
    return max(len(prompt_ids(row, tokenizer)) for row in rows)
