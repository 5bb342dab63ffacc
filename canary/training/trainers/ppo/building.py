"""Build a PPO trainer from a config: policy, value head, reference, scorer, data."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from transformers import GenerationConfig, PreTrainedTokenizerBase, TrainingArguments, set_seed

from canary.config.schema import CanaryConfig
from canary.config.sections import PPOConfig
from canary.errors import ConfigError, InputError
from canary.protocol.spec import WorkloadSpec
from canary.training import adapt
from canary.training.data.dataset import load_rows
from canary.training.models.model import load_model, load_tokenizer, lora_config, reference_of
from canary.training.plugins import callbacks
from canary.training.trainers.arguments import training_arguments, uses_cuda
from canary.training.trainers.ppo.model import ActorCritic, without_dropout
from canary.training.trainers.ppo.objective import MOST
from canary.training.trainers.ppo.rollout import prompt_ids
from canary.training.trainers.ppo.scoring import build_scorer
from canary.training.trainers.ppo.trainer import PPOTrainer
from canary.training.trainers.speed import cache, compilation


@dataclass
class PPOArguments(TrainingArguments):
    """`canary.config.sections` describes each argument."""

    max_new_tokens: int = 32
    temperature: float = 1.0
    fixed_length: bool = False
    gamma: float = 1.0
    lam: float = 0.95
    cliprange: float = 0.2
    cliprange_value: float = 0.2
    vf_coef: float = 0.1
    ent_coef: float = 0.0
    init_kl_coef: float = 0.05
    kl_estimator: str = "k1"
    adap_kl_ctrl: bool = False
    target: float = 6.0
    horizon: int = 10_000
    target_kl: float | None = None
    ppo_epochs: int = 4
    num_mini_batches: int = 1
    whiten_rewards: bool = False
    missing_eos_penalty: float | None = None

    @property
    def mini_batch(self) -> int:
        """Completions per update on one rank."""
        return self.per_device_train_batch_size * self.gradient_accumulation_steps

    @property
    def rollout_size(self) -> int:
        """Completions per step on one rank."""
        return self.mini_batch * self.num_mini_batches


ARGUMENTS_OF_PPO = tuple(name for name in PPOConfig.model_fields if name != "reward_model")
"""Keys of the `ppo` section that are arguments of the trainer."""


ELSEWHERE = (
    "neftune_noise_alpha",
    "label_smoothing_factor",
    "auto_find_batch_size",
    "torch_empty_cache_steps",
    "eval_on_start",
    "load_best_model_at_end",
)
"""Arguments of transformers that its training loop reads and PPO's does not."""


def build(spec: WorkloadSpec) -> PPOTrainer:
    """Return a PPOTrainer, not yet started."""
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
        f"trainer_args.{name} is not used: PPO has another training loop"
        for name in ELSEWHERE
        if config.trainer_args.get(name)
    )
    _require_a_horizon(spec, arguments)
    _require_prompts(spec, rows, tokenizer)
    # The tokens of the longest prompt, if a tensor needs that width.
    widest = None
    if config.speed.lengths == "fixed" or has_fixed_cache(config):
        widest = max(len(prompt_ids(row, tokenizer)) for row in rows)
    policy = load_model(spec, tokenizer)
    # A model's other settings change what is sampled (top_k, repetition_penalty ...). `generate`
    # would use them, and PPO would learn from other log-probabilities than it sampled.
    kept = ("bos_token_id", "eos_token_id", "pad_token_id")
    tokens = {name: getattr(policy.generation_config, name) for name in kept}
    policy.generation_config = GenerationConfig(**tokens)
    reference = reference_of(spec, policy)
    adapt.checkpoint_activations(policy, arguments)
    trainer = PPOTrainer(
        model=_actor_critic(spec, policy),
        reference=reference,
        scorer=build_scorer(spec, rows, tokenizer, arguments.device),
        args=arguments,
        switches=switches_of(config, widest),
        train_dataset=rows,
        processing_class=tokenizer,
        callbacks=callbacks(spec),
    )
    _require_whole_models(trainer)
    return trainer


def _require_whole_models(trainer: Any) -> None:
    """Raise ConfigError if the ranks hold only shards of the policy that they sample from."""
    if trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled:
        raise ConfigError(
            "PPO needs the whole policy on every rank, but FSDP or DeepSpeed shards it",
            "train with DDP (nproc), or on one device",
            key="training_type",
        )


def _require_a_horizon(spec: WorkloadSpec, arguments: PPOArguments) -> None:
    """Raise ConfigError if one adaptation could make the KL's weight zero or negative."""
    completions = arguments.rollout_size * spec.ranks
    least = math.floor(MOST * completions) + 1
    if arguments.adap_kl_ctrl and arguments.horizon < least:
        raise ConfigError(
            f"ppo.horizon {arguments.horizon} is too short for rollouts of {completions} "
            "completions: the weight of the KL could become zero or negative",
            f"set it to at least {least}; 10000 is usual",
            key="ppo.horizon",
        )


def _require_prompts(spec: WorkloadSpec, rows: Any, tokenizer: PreTrainedTokenizerBase) -> None:
    """Raise InputError for a row whose prompt has no token: sampling needs a first token."""
    for number, prompt in enumerate(rows["prompt"], start=1):
        if prompt == "" and not prompt_ids({"prompt": prompt}, tokenizer):
            raise InputError(
                f"dataset '{spec.config.dataset_name}': 'prompt' of usable row {number} is empty",
                "leave the row out",
            )


def _actor_critic(spec: WorkloadSpec, policy: Any) -> ActorCritic:
    """Return the policy with its adapter (if any) and a value head. Dropout is off, so that the
    policy that samples is the one that is trained."""
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


@dataclass(frozen=True)
class Switches:
    """Ways to do the same work. They change what is learned only by rounding."""

    advantages_by_loop: bool = False
    whole_logprobs: bool = False
    shared_forward: bool = True
    bucketed: bool = False
    fixed_width: bool = False
    """Pad prompts and completions to their largest possible length."""
    prompt_width: int | None = None
    """With `fixed_width`: prompts are padded to this many tokens."""
    rows_at_once: int | None = None
    """How many prompts are sampled together; None: all prompts of a rollout."""
    generation: tuple[tuple[str, Any], ...] = ()
    """Arguments of `generate` for the cache and compilation."""


def switches_of(config: CanaryConfig, prompt_width: int | None) -> Switches:
    """Return the config's switches; a switch that is not set gets its fastest safe value.

    `prompt_width`: tokens of the longest prompt, if a tensor needs that width.
    """
    speed = config.speed
    generation = {"use_cache": True, **cache(config), **compilation(config, uses_cuda(config))}
    if has_fixed_cache(config) and hasattr(GenerationConfig(), "max_cache_len"):
        # Room for the longest prompt at once: a cache that grows has its code compiled again. In
        # older transformers, without the argument, it grows.
        assert prompt_width is not None
        assert config.max_new_tokens is not None
        generation["max_cache_len"] = prompt_width + config.max_new_tokens
    return Switches(
        advantages_by_loop=speed.advantages == "loop",
        whole_logprobs=speed.logprobs == "whole",
        shared_forward=speed.shared_forward is not False,
        bucketed=speed.lengths == "bucketed",
        fixed_width=speed.lengths == "fixed",
        prompt_width=prompt_width if speed.lengths == "fixed" else None,
        rows_at_once=config.batch_size if speed.rollout_batch == "micro" else None,
        generation=tuple(generation.items()),
    )


def has_fixed_cache(config: CanaryConfig) -> bool:
    """Return whether decoding uses a cache of fixed size."""
    return config.speed.decode in ("static", "compiled")
